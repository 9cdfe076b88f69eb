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
	manyProjects = flag.Int("projects", 1000, "how many projects BenchmarkProjects makes")
	projectsRate = flag.Float64("projects-rate", 4, "how many of them it makes in a second")
)

// quietPeriod is how long nothing may be written once all projects are there.
const quietPeriod = 20 * time.Second

// BenchmarkProjects measures how long it takes from the creation of a Project to
// the objects that are rendered for it, while a thousand of them come one after
// another at an even pace; and how much is written when nothing changes any more.
// One operation is one whole run on a cluster that had none of them: run it by itself,
// with -benchtime 1x.
//
//	s-rendered-p50, -p99  from the Project's creation to the last of its two quotas
//	s-governed-p50, -p99  to its namespace being governed: the quotas are counted
//	writes-at-rest        objects of any of the kinds that changed in 20 seconds
func BenchmarkProjects(b *testing.B) {
	b.ReportMetric(0, "ns/op") // the pace is given
	for b.Loop() {
		r := &renderTimes{made: map[string]time.Time{}, quotas: map[string]int{}, rendered: map[string]time.Duration{}, governed: map[string]time.Duration{}}
		// What is made goes with the cluster: a thousand namespaces take minutes to end.
		department := &v1alpha1.Department{ObjectMeta: metav1.ObjectMeta{Name: "many"}}
		department.Spec.NodePools = []v1alpha1.PoolQuota{newPoolQuota("dgx", "8", "8")}
		if err := sharedCluster.adminClient.Create(b.Context(), department); err != nil {
			b.Fatal(err)
		}
		r.watchKind(b, &corev1.ResourceQuotaList{}, client.HasLabels{v1alpha1.LabelProject}, r.observeQuota)
		r.watchKind(b, &corev1.NamespaceList{}, client.HasLabels{v1alpha1.LabelProject}, r.observeNamespace)
		pace := time.NewTicker(time.Duration(float64(time.Second) / *projectsRate))
		for i := range *manyProjects {
			<-pace.C
			p := newProject("many-"+strconv.Itoa(i), func(p *v1alpha1.Project) {
				p.Spec.Department = "many"
				p.Spec.NodePools = []v1alpha1.PoolQuota{newPoolQuota("dgx", "0", "1")}
			})
			r.start(p.Name)
			if err := sharedCluster.adminClient.Create(b.Context(), p); err != nil {
				b.Fatal(err)
			}
		}
		pace.Stop()
		eventuallyLong(b, func() error { return r.checkAllRendered(*manyProjects) })
		b.ReportMetric(quantileSeconds(r.rendered, 0.5), "s-rendered-p50")
		b.ReportMetric(quantileSeconds(r.rendered, 0.99), "s-rendered-p99")
		b.ReportMetric(quantileSeconds(r.governed, 0.5), "s-governed-p50")
		b.ReportMetric(quantileSeconds(r.governed, 0.99), "s-governed-p99")
		b.ReportMetric(float64(writesAtRest(b)), "writes-at-rest")
	}
}

// renderTimes is when each project got what it needs.
type renderTimes struct {
	mu                 sync.Mutex
	made               map[string]time.Time
	quotas             map[string]int
	rendered, governed map[string]time.Duration
}

func (r *renderTimes) start(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.made[name] = policytime.MachineNow()
}

// watchKind tells of each object of a kind as it is made or changed.
func (r *renderTimes) watchKind(b *testing.B, list client.ObjectList, option client.ListOption, seen func(watch.Event)) {
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
			seen(event)
		}
	}()
}

// observeQuota notes the second of the two quotas of a project.
func (r *renderTimes) observeQuota(event watch.Event) {
	if it, ok := event.Object.(*corev1.ResourceQuota); ok && event.Type == watch.Added {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.quotas[it.Namespace]++; r.quotas[it.Namespace] == 2 && !r.made[it.Namespace].IsZero() {
			r.rendered[it.Namespace] = policytime.MachineNow().Sub(r.made[it.Namespace])
		}
	}
}

// observeNamespace notes that one is governed: it is not before it has the label.
func (r *renderTimes) observeNamespace(event watch.Event) {
	it, ok := event.Object.(*corev1.Namespace)
	if !ok || event.Type == watch.Deleted {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, known := r.governed[it.Name]; !known && !r.made[it.Name].IsZero() {
		r.governed[it.Name] = policytime.MachineNow().Sub(r.made[it.Name])
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

// quantileSeconds is a quantile, in seconds.
func quantileSeconds(took map[string]time.Duration, quantile float64) float64 {
	var all []time.Duration
	for _, d := range took {
		all = append(all, d)
	}
	slices.Sort(all)
	return all[min(len(all)-1, int(quantile*float64(len(all))))].Seconds()
}

// writesAtRest is how many objects of the projects, of any kind that lifecycle
// writes, change while nothing happens.
func writesAtRest(b *testing.B) int {
	b.Helper()
	// What follows the last project, such as its department's sums, comes to rest.
	var before map[types.UID]string
	eventuallyLong(b, func() error {
		now := resourceVersions(b)
		defer func() { before = now }()
		if changed := countDifferences(before, now); changed > 0 {
			return unexpectedState("nothing changes any more", changed)
		}
		return nil
	})
	select {
	case <-b.Context().Done():
	case <-time.After(quietPeriod): // a span is what is measured
	}
	return countDifferences(before, resourceVersions(b))
}

// resourceVersions are the versions of all these objects.
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
