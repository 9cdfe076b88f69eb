// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"flag"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
)

var (
	manyProjects = flag.Int("projects", 1000, "how many projects BenchmarkProjects and BenchmarkSuspensionDay create")
	projectsRate = flag.Float64("projects-rate", 4, "how many projects BenchmarkProjects creates per second")
)

// restPeriod is the time for which writes are counted once all projects are rendered.
const restPeriod = 20 * time.Second

// BenchmarkProjects measures the time from the creation of a Project until its objects are
// rendered, while a thousand projects are created at a constant rate, and how many objects
// change afterwards. One operation is a whole run on a cluster without such projects: run it
// alone, with -benchtime 1x.
//
//	s-rendered-p50, -p99  from the creation of the Project to its quota
//	s-governed-p50, -p99  to the label of its namespace: the quota is counted
//	writes-at-rest        objects of all kinds that changed in 20 seconds
func BenchmarkProjects(b *testing.B) {
	b.ReportMetric(0, "ns/op") // the rate is fixed
	for b.Loop() {
		r := &renderTimes{created: map[string]time.Time{}, rendered: map[string]time.Duration{}, governed: map[string]time.Duration{}}
		// The objects are deleted with the cluster: deleting a thousand namespaces takes
		// minutes.
		department := &v1alpha1.Department{ObjectMeta: metav1.ObjectMeta{Name: "many"}}
		department.Spec.NodePools, department.Spec.Oversubscription = []v1alpha1.PoolQuota{newPoolQuota("dgx", "8", "8")}, v1alpha1.OversubscriptionAllow
		if err := sharedCluster.adminClient.Create(b.Context(), department); err != nil {
			b.Fatal(err)
		}
		r.watchKind(b, &corev1.ResourceQuotaList{}, client.HasLabels{v1alpha1.LabelProject}, r.observeQuota)
		r.watchKind(b, &corev1.NamespaceList{}, client.HasLabels{v1alpha1.LabelProject}, r.observeNamespace)
		ticker := time.NewTicker(time.Duration(float64(time.Second) / *projectsRate))
		for i := range *manyProjects {
			<-ticker.C
			p := newProject("many-"+strconv.Itoa(i), func(p *v1alpha1.Project) {
				p.Spec.Department = "many"
				p.Spec.NodePools = []v1alpha1.PoolQuota{newPoolQuota("dgx", "0", "1")}
			})
			r.start(p.Name)
			if err := sharedCluster.adminClient.Create(b.Context(), p); err != nil {
				b.Fatal(err)
			}
		}
		ticker.Stop()
		eventuallyLong(b, func() error { return r.checkAllRendered(*manyProjects) })
		b.ReportMetric(quantileSeconds(r.rendered, 0.5), "s-rendered-p50")
		b.ReportMetric(quantileSeconds(r.rendered, 0.99), "s-rendered-p99")
		b.ReportMetric(quantileSeconds(r.governed, 0.5), "s-governed-p50")
		b.ReportMetric(quantileSeconds(r.governed, 0.99), "s-governed-p99")
		b.ReportMetric(float64(writesAtRest(b)), "writes-at-rest")
	}
}

// renderTimes records when each project was rendered and governed.
type renderTimes struct {
	mu                 sync.Mutex
	created            map[string]time.Time
	rendered, governed map[string]time.Duration
}

func (r *renderTimes) start(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.created[name] = policytime.MachineNow()
}

// watchKind calls the handler for each event of a kind.
func (r *renderTimes) watchKind(b *testing.B, list client.ObjectList, option client.ListOption, handler func(watch.Event)) {
	b.Helper()
	watching, err := client.NewWithWatch(sharedCluster.config, client.Options{Scheme: sharedCluster.adminClient.Scheme()})
	if err != nil {
		b.Fatal(err)
	}
	watcher, err := watching.Watch(b.Context(), list, option)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(watcher.Stop)
	go func() {
		for event := range watcher.ResultChan() {
			handler(event)
		}
	}()
}

// observeQuota records the creation of the quota of a project.
func (r *renderTimes) observeQuota(event watch.Event) {
	if quota, ok := event.Object.(*corev1.ResourceQuota); ok && event.Type == watch.Added {
		r.mu.Lock()
		defer r.mu.Unlock()
		if !r.created[quota.Namespace].IsZero() {
			r.rendered[quota.Namespace] = policytime.MachineNow().Sub(r.created[quota.Namespace])
		}
	}
}

// observeNamespace records when a namespace is governed, which is when it has the label.
func (r *renderTimes) observeNamespace(event watch.Event) {
	ns, ok := event.Object.(*corev1.Namespace)
	if !ok || event.Type == watch.Deleted {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, known := r.governed[ns.Name]; !known && !r.created[ns.Name].IsZero() {
		r.governed[ns.Name] = policytime.MachineNow().Sub(r.created[ns.Name])
	}
}

func (r *renderTimes) checkAllRendered(n int) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.rendered) < n || len(r.governed) < n {
		return unexpectedState(fmt.Sprintf("%d projects are rendered and governed", n), []int{len(r.rendered), len(r.governed)})
	}
	return nil
}

// quantileSeconds returns a quantile in seconds.
func quantileSeconds(durations map[string]time.Duration, quantile float64) float64 {
	var all []time.Duration
	for _, d := range durations {
		all = append(all, d)
	}
	slices.Sort(all)
	return all[min(len(all)-1, int(quantile*float64(len(all))))].Seconds()
}

// writesAtRest returns how many objects of the projects, of all kinds that lifecycle writes,
// change while nothing happens.
func writesAtRest(b *testing.B) int {
	b.Helper()
	// Wait until late writes, such as the sums of the department, have settled.
	var before map[types.UID]string
	eventuallyLong(b, func() error {
		now := resourceVersions(b)
		defer func() { before = now }()
		if changed := countDifferences(before, now); changed > 0 {
			return unexpectedState("no object changes", changed)
		}
		return nil
	})
	select {
	case <-b.Context().Done():
	case <-time.After(restPeriod): // the benchmark counts writes over a period
	}
	return countDifferences(before, resourceVersions(b))
}

// resourceVersions returns the versions of all these objects by UID.
func resourceVersions(b *testing.B) map[types.UID]string {
	b.Helper()
	all := map[types.UID]string{}
	for apiVersion, kinds := range map[string][]string{
		"v1":                           {"Namespace", "ResourceQuota", "LimitRange"},
		"networking.k8s.io/v1":         {"NetworkPolicy"},
		"rbac.authorization.k8s.io/v1": {"RoleBinding", "ClusterRole", "ClusterRoleBinding"},
		v1alpha1.GroupVersion.String(): {"Project", "Department", "NodePool", "Policy"},
	} {
		for _, kind := range kinds {
			list := &metav1.PartialObjectMetadataList{}
			list.APIVersion, list.Kind = apiVersion, kind+"List"
			if err := sharedCluster.adminClient.List(b.Context(), list); err != nil {
				b.Fatal(err)
			}
			for i := range list.Items {
				all[list.Items[i].UID] = list.Items[i].ResourceVersion
			}
		}
	}
	return all
}

func countDifferences(before, now map[types.UID]string) int {
	n := 0
	for uid, version := range now {
		if before[uid] != version {
			n++
		}
	}
	return n
}
