// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/test/clustertest"
)

// suspensionDay is a cluster with a node of many GPUs, and what is observed in it.
type suspensionDay struct {
	*policyTimeCluster
	// n is the number of projects.
	n int
	// metrics is the address of lifecycle's metrics.
	metrics string

	mu sync.Mutex
	// since is the last step. seen has the time from it to the first event, by what happened and the project or owner.
	since time.Time
	seen  map[string]map[string]time.Duration
	// notices are the names of Notices by recipient and kind.
	notices map[string]map[string]bool
	// started are the pods that the node has started, ended those that it has ended.
	started, ended map[types.UID]bool
}

// newSuspensionDay starts a cluster with a node pool for the projects.
func newSuspensionDay(b *testing.B) *suspensionDay {
	b.Helper()
	d := &suspensionDay{
		policyTimeCluster: &policyTimeCluster{sluiceCluster: newUnsharedCluster(b, "--nodes", "1")},
		n:                 *manyProjects, since: policytime.MachineNow(),
		seen: map[string]map[string]time.Duration{}, notices: map[string]map[string]bool{},
		started: map[types.UID]bool{}, ended: map[types.UID]bool{},
	}
	var err error
	if d.clockFile, err = policytime.OpenFile(filepath.Join(d.dir, policytime.FileName), nil); err != nil {
		b.Fatal(err)
	}
	raw, err := os.ReadFile(d.configurationFile("lifecycle"))
	if err != nil {
		b.Fatal(err)
	}
	var config struct {
		Metrics string `json:"metrics"`
	}
	if err := yaml.Unmarshal(raw, &config); err != nil {
		b.Fatal(err)
	}
	d.metrics = config.Metrics
	pool := &v1alpha1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: dayName}, Spec: v1alpha1.NodePoolSpec{
		NodeSelector: map[string]string{v1alpha1.LabelNodePool: dayName}, Scheduler: v1alpha1.SchedulerKube, Sharing: v1alpha1.SharingNone,
	}}
	d.createForTest(b, pool)
	// kwok keeps the node ready; the benchmark runs its pods.
	d.createForTest(b, &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: dayName, Labels: map[string]string{v1alpha1.LabelNodePool: dayName, v1alpha1.LabelGPUCount: strconv.Itoa(2 * d.n)},
			Annotations: map[string]string{kwokNode: "fake"},
		},
		Status: corev1.NodeStatus{Capacity: d.capacity(), Allocatable: d.capacity()},
	})
	d.observe(b)
	return d
}

// capacity returns the resources of the node, with room for all projects.
func (d *suspensionDay) capacity() corev1.ResourceList {
	list, most := corev1.ResourceList{}, *resource.NewQuantity(int64(2*d.n), resource.DecimalSI)
	for _, name := range []corev1.ResourceName{v1alpha1.ResourceNVIDIAGPU, corev1.ResourcePods, corev1.ResourceCPU} {
		list[name] = most
	}
	list[corev1.ResourceMemory] = resource.MustParse("64Ti")
	return list
}

// observe watches the objects of the projects, and runs their pods.
func (d *suspensionDay) observe(b *testing.B) {
	b.Helper()
	watches, err := cache.New(d.config, cache.Options{Scheme: d.adminClient.Scheme()})
	if err != nil {
		b.Fatal(err)
	}
	for _, object := range []client.Object{&v1alpha1.Project{}, &v1alpha1.Notice{}, &batchv1.Job{}, &batchv1.CronJob{}, &corev1.Pod{}} {
		informer, err := watches.GetInformer(b.Context(), object, cache.BlockUntilSynced(false))
		if err != nil {
			b.Fatal(err)
		}
		if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc:    func(object any) { d.observeObject(b, object) },
			UpdateFunc: func(_, object any) { d.observeObject(b, object) },
			DeleteFunc: func(object any) {
				if pod, ok := object.(*corev1.Pod); ok && pod.Spec.NodeName == dayName {
					d.record("gpus-free", pod.Namespace)
				}
			},
		}); err != nil {
			b.Fatal(err)
		}
	}
	var done sync.WaitGroup
	ctx, stop := context.WithCancel(b.Context())
	b.Cleanup(func() { stop(); done.Wait() })
	done.Go(func() {
		if err := watches.Start(ctx); err != nil {
			b.Error(err)
		}
	})
}

func (d *suspensionDay) observeObject(b *testing.B, object any) {
	switch o := object.(type) {
	case *v1alpha1.Project:
		if o.Status.Phase == v1alpha1.ProjectSuspended {
			d.record("suspended", o.Name)
		}
	case *batchv1.Job:
		if ptr.Deref(o.Spec.Suspend, false) {
			d.record("jobs", o.Namespace)
		}
	case *batchv1.CronJob:
		if ptr.Deref(o.Spec.Suspend, false) {
			d.record("cronjobs", o.Namespace)
		}
	case *v1alpha1.Notice:
		d.recordNotice(o)
	case *corev1.Pod:
		if o.Spec.NodeName == dayName {
			d.runPod(b, o)
		}
	}
}

// runPod starts a pod, and ends one that is deleted at once, as a kubelet does with containers that obey.
func (d *suspensionDay) runPod(b *testing.B, pod *corev1.Pod) {
	d.mu.Lock()
	start := pod.DeletionTimestamp == nil && !d.started[pod.UID]
	end := pod.DeletionTimestamp != nil && !d.ended[pod.UID]
	d.started[pod.UID], d.ended[pod.UID] = true, pod.DeletionTimestamp != nil
	d.mu.Unlock()
	status := corev1.PodStatus{Phase: corev1.PodRunning, StartTime: ptr.To(metav1.Now()), Conditions: []corev1.PodCondition{{
		Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now(),
	}}}
	main := pod.Spec.Containers[0]
	container := corev1.ContainerStatus{Name: main.Name, Image: main.Image, Ready: true}
	container.State.Running = &corev1.ContainerStateRunning{StartedAt: metav1.Now()}
	switch {
	case end:
		status.Phase, status.Conditions[0].Status, container.Ready = corev1.PodFailed, corev1.ConditionFalse, false
		container.State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 143, FinishedAt: metav1.Now()}}
	case !start:
		return
	}
	status.ContainerStatuses = []corev1.ContainerStatus{container}
	go func() { // otherwise the events of other pods would wait
		body, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID}, "status": status})
		pods := d.clientset.CoreV1().Pods(pod.Namespace)
		if err == nil {
			_, err = pods.Patch(b.Context(), pod.Name, types.StrategicMergePatchType, body, metav1.PatchOptions{}, "status")
		}
		if err == nil && end {
			err = pods.Delete(b.Context(), pod.Name, metav1.DeleteOptions{
				GracePeriodSeconds: ptr.To(int64(0)), Preconditions: metav1.NewUIDPreconditions(string(pod.UID)),
			})
		}
		if err == nil && !end {
			d.record("running", pod.Namespace)
		}
		if err != nil && !apierrors.IsNotFound(err) && b.Context().Err() == nil {
			b.Errorf("pod %s/%s: %v", pod.Namespace, pod.Name, err)
		}
	}()
}

func sentOf(kind v1alpha1.NoticeKind) string { return string(kind) + " sent" }

// recordNotice records a Notice to an owner.
func (d *suspensionDay) recordNotice(n *v1alpha1.Notice) {
	if !strings.HasPrefix(string(n.Spec.Recipient.Email), dayName+"-") {
		return
	}
	d.mu.Lock()
	key := string(n.Spec.Recipient.Email) + ": " + string(n.Spec.Kind)
	if d.notices[key] == nil {
		d.notices[key] = map[string]bool{}
	}
	d.notices[key][n.Name] = true
	d.mu.Unlock()
	if n.Status.Phase == v1alpha1.NoticeSent {
		d.record(sentOf(n.Spec.Kind), string(n.Spec.Recipient.Email))
	}
}

// begin begins the times anew.
func (d *suspensionDay) begin() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.since = policytime.MachineNow()
}

// record records when something was first seen of a project or an owner.
func (d *suspensionDay) record(what, of string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.seen[what] == nil {
		d.seen[what] = map[string]time.Duration{}
	}
	if _, known := d.seen[what][of]; !known {
		d.seen[what][of] = policytime.MachineNow().Sub(d.since)
	}
}

func (d *suspensionDay) times(what string) map[string]time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return maps.Clone(d.seen[what])
}

// check returns an error until something was seen n times.
func (d *suspensionDay) check(what string, n int) error {
	if got := len(d.times(what)); got < n {
		return unexpectedState(fmt.Sprintf("%d are %s", n, what), got)
	}
	return nil
}

// noticeCounts returns the number of Notices by recipient and kind.
func (d *suspensionDay) noticeCounts() map[string]int {
	d.mu.Lock()
	defer d.mu.Unlock()
	counts := map[string]int{}
	for key, names := range d.notices {
		counts[key] = len(names)
	}
	return counts
}

// waitUntilIdle waits until no controller of lifecycle has work left.
func (d *suspensionDay) waitUntilIdle(b *testing.B) {
	b.Helper()
	clustertest.EventuallyWithin(b, dayTimeout, func() error {
		left := 0.0
		for name, n := range d.lifecycleMetrics(b) {
			if strings.HasPrefix(name, "workqueue_depth{") || strings.HasPrefix(name, "controller_runtime_active_workers{") {
				left += n
			}
		}
		if left > 0 {
			return unexpectedState("lifecycle has nothing left to do", left)
		}
		return nil
	})
}
