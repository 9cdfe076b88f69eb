// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package planner_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"sluice.dev/api"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/migplan/gpunode"
	"sluice.dev/lifecycle/migplan/planner"
	"sluice.dev/lifecycle/podcache"
	"sluice.dev/lifecycle/quota/capacity"
	"sluice.dev/lifecycle/rendering/admissionpolicy"
	"sluice.dev/manifests"
	"sluice.dev/test/clustertest"
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	clustertest.Main(m, clustertest.InstallKinds)
}

const lifecycleUser = "system:serviceaccount:sluice-system:lifecycle"

// testCluster is a cluster in which lifecycle runs with its own rights only.
type testCluster struct {
	testing.TB
	client.Client // as administrator

	stop func()
	// began is when the planner's time was real time.
	began time.Time
}

// plannerSpeed is the speed of the planner's time: the planner waits for schedulers and between two changes of a node. What the
// agent has minutes for, the copier does in a moment.
const plannerSpeed = 5

// now is the planner's machine time.
func (l *testCluster) now() time.Time { return l.began.Add(plannerSpeed * time.Since(l.began)) }

func newTestCluster(t testing.TB) *testCluster {
	l := &testCluster{TB: t, Client: clustertest.Admin(t), began: time.Now()}
	objects, err := manifests.Build("base")
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range objects {
		switch {
		case object.GetKind() == "Namespace",
			object.GetKind() == "ClusterRole" && strings.HasPrefix(object.GetName(), "sluice-lifecycle"),
			object.GetKind() == "ClusterRoleBinding" && strings.HasPrefix(object.GetName(), "sluice-lifecycle"):
			if err := client.IgnoreAlreadyExists(l.Create(t.Context(), object)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := client.IgnoreAlreadyExists(l.Create(t.Context(), admissionpolicy.NewParameters(v1alpha1.AdmissionParametersSpec{}))); err != nil {
		t.Fatal(err)
	}
	policies, err := admissionpolicy.LoadPolicies(manifests.Files, false)
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range policies {
		if err := client.IgnoreAlreadyExists(l.Create(t.Context(), object)); err != nil {
			t.Fatal(err)
		}
	}
	return l
}

// startControllers runs lifecycle's MIG controllers until the test ends or stop is called.
func (l *testCluster) startControllers() {
	l.Helper()
	kinds, err := api.NewScheme()
	if err != nil {
		l.Fatal(err)
	}
	often := true
	mgr, err := ctrl.NewManager(l.lifecycleConfig(), ctrl.Options{
		Scheme: kinds, Logger: logr.Discard(), Controller: config.Controller{SkipNameValidation: &often},
		Metrics: metricsserver.Options{BindAddress: "0"}, HealthProbeBindAddress: "0",
		Cache: cache.Options{DefaultTransform: cache.TransformStripManagedFields()},
	})
	if err != nil {
		l.Fatal(err)
	}
	pods, err := podcache.New(mgr.GetConfig(), podcache.Settings{})
	if err != nil {
		l.Fatal(err)
	}
	if err := errors.Join(
		mgr.Add(pods),
		(&gpunode.Reconciler{Client: mgr.GetClient()}).SetupWithManager(mgr),
		(&capacity.Reconciler{Client: mgr.GetClient()}).SetupWithManager(mgr),
		(&planner.Reconciler{Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Pods: pods, Events: mgr.GetEventRecorder("test")}).
			UseClock(l.now, plannerSpeed).SetupWithManager(mgr),
	); err != nil {
		l.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	l.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			l.Error(err)
		}
	})
	l.Cleanup(l.stop)
}

func (l *testCluster) lifecycleConfig() *rest.Config {
	as := rest.CopyConfig(clustertest.Start(l).Config())
	as.Impersonate = rest.ImpersonationConfig{UserName: lifecycleUser, Groups: []string{"system:serviceaccounts", "system:authenticated"}}
	return as
}

// createNode creates a node with two A100s in MIG mode, which stays ready until the test ends.
func (l *testCluster) createNode(name string) {
	l.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"mig": "yes", v1alpha1.LabelGPUCount: "2"}}}
	for _, key := range append(v1alpha1.GPUClientLabels(), "nvidia.com/gpu.deploy.client") {
		node.Labels[key] = "true"
	}
	node.Labels["nvidia.com/gpu.deploy.nvsm"] = "false"
	if err := l.Create(l.Context(), node); err != nil {
		l.Fatal(err)
	}
	l.Cleanup(func() { _ = l.Delete(context.Background(), node) })
	l.publishDevices(name, corev1.ResourceList{})
	l.renewLease(name)
}

// renewLease renews the node's lease, as a kubelet does, and makes the node ready again if it was late.
func (l *testCluster) renewLease(name string) {
	l.Helper()
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: name},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &name},
	}
	clustertest.Eventually(l, func() error { // the namespace is created in the background
		lease.ResourceVersion = ""
		return client.IgnoreAlreadyExists(l.Create(l.Context(), lease))
	})
	ctx, cancel := context.WithCancel(context.Background())
	var ended sync.WaitGroup
	ended.Go(func() {
		for ctx.Err() == nil {
			renewed := fmt.Appendf(nil, `{"spec":{"renewTime":%q}}`, time.Now().UTC().Format(metav1.RFC3339Micro))
			_ = l.Patch(ctx, lease.DeepCopy(), client.RawPatch(types.MergePatchType, renewed))
			node := &corev1.Node{}
			if l.Get(ctx, types.NamespacedName{Name: name}, node) == nil && len(node.Status.Conditions) > 0 &&
				node.Status.Conditions[0].Status != corev1.ConditionTrue {
				node.Status.Conditions = readyConditions()
				_ = l.Status().Update(ctx, node)
			}
			select {
			case <-ctx.Done():
			case <-time.After(time.Second): // the lease's interval
			}
		}
	})
	l.Cleanup(func() { cancel(); ended.Wait() })
}

func readyConditions() []corev1.NodeCondition {
	return []corev1.NodeCondition{{
		Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "Test", LastHeartbeatTime: metav1.Now(), LastTransitionTime: metav1.Now(),
	}}
}

// publishDevices sets allocatable as kubelet and device plugin would.
func (l *testCluster) publishDevices(name string, devices corev1.ResourceList) {
	l.Helper()
	clustertest.Eventually(l, func() error { return l.tryPublishDevices(l.Context(), name, devices) })
}

func (l *testCluster) tryPublishDevices(ctx context.Context, name string, devices corev1.ResourceList) error {
	var node corev1.Node
	if err := l.Get(ctx, types.NamespacedName{Name: name}, &node); err != nil {
		return err
	}
	for key := range node.Status.Allocatable {
		if strings.HasPrefix(string(key), v1alpha1.ResourceNVIDIAMIGPrefix) {
			delete(node.Status.Allocatable, key)
			delete(node.Status.Capacity, key)
		}
	}
	if node.Status.Allocatable == nil {
		node.Status.Allocatable, node.Status.Capacity = corev1.ResourceList{}, corev1.ResourceList{}
	}
	for _, list := range []corev1.ResourceList{node.Status.Allocatable, node.Status.Capacity} {
		list[corev1.ResourceCPU], list[corev1.ResourceMemory] = resource.MustParse("8"), resource.MustParse("8Gi")
		list[corev1.ResourcePods] = resource.MustParse("100")
		for key, amount := range devices {
			list[key] = amount
		}
	}
	node.Status.Conditions = readyConditions()
	return l.Status().Update(ctx, &node)
}

// cacheCopier replaces the agents and the device plugins: it copies the spec of every GPUNode
// into its status, and the instances into the node's allocatable, without any check.
type cacheCopier struct {
	*testCluster
	paused atomic.Bool
}

func (l *testCluster) newCacheCopier() *cacheCopier {
	c := &cacheCopier{testCluster: l}
	ctx, cancel := context.WithCancel(context.Background())
	var ended sync.WaitGroup
	ended.Go(func() {
		for ctx.Err() == nil {
			if !c.paused.Load() {
				c.copyAll(ctx)
			}
			select {
			case <-ctx.Done():
			case <-time.After(100 * time.Millisecond): // the copier's interval
			}
		}
	})
	l.Cleanup(func() { cancel(); ended.Wait() })
	return c
}

func (c *cacheCopier) copyAll(ctx context.Context) {
	var all v1alpha1.GPUNodeList
	if c.List(ctx, &all) != nil {
		return
	}
	for i := range all.Items {
		node := &all.Items[i]
		if len(node.Status.GPUs) > 0 && node.Status.ObservedGeneration == node.Generation &&
			c.now().Sub(node.Status.SampledAt.Time) < time.Minute {
			continue
		}
		devices := corev1.ResourceList{}
		node.Status.GPUs = nil
		for index := range 2 {
			g := v1alpha1.ObservedGPU{
				UUID: v1alpha1.GPUUUID(fmt.Sprintf("GPU-00000000-0000-0000-0000-%012d", index)), Index: int32(index), //nolint:gosec // small
				DeviceID: "0x20B010DE", Model: "NVIDIA A100-SXM4-40GB", MemoryMiB: 40960, Health: v1alpha1.GPUHealthy,
				MIG:         v1alpha1.MIGMode{Current: v1alpha1.MIGModeEnabled, Pending: v1alpha1.MIGModeEnabled},
				MIGProfiles: []v1alpha1.MIGProfile{"1g.5gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb"},
			}
			for _, desired := range node.Spec.GPUs {
				for _, it := range desired.Instances {
					if desired.UUID != g.UUID {
						continue
					}
					g.Instances = append(g.Instances, v1alpha1.ObservedInstance{
						Profile: it.Profile, Start: it.Start, State: v1alpha1.InstanceIdle, UUID: fmt.Sprintf("MIG-%d-%d", index, it.Start),
					})
					amount := devices[v1alpha1.ResourceMIG(it.Profile)]
					amount.Add(resource.MustParse("1"))
					devices[v1alpha1.ResourceMIG(it.Profile)] = amount
				}
			}
			node.Status.GPUs = append(node.Status.GPUs, g)
		}
		node.Status.ObservedGeneration, node.Status.SampledAt = node.Generation, &metav1.Time{Time: c.now()}
		if c.Status().Update(ctx, node) == nil {
			for c.tryPublishDevices(ctx, node.Name, devices) != nil && ctx.Err() == nil {
				time.Sleep(20 * time.Millisecond)
			}
		}
	}
}

func (l *testCluster) createPod(namespace, name, profile string) *corev1.Pod {
	l.Helper()
	amount := corev1.ResourceList{corev1.ResourceName("nvidia.com/mig-" + profile): resource.MustParse("1")}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	pod.Spec.Containers = []corev1.Container{{Name: "a", Image: "example.org/a", Resources: corev1.ResourceRequirements{Limits: amount}}}
	if err := l.Create(l.Context(), pod); err != nil {
		l.Fatal(err)
	}
	l.Cleanup(func() { _ = l.Delete(context.Background(), pod, client.GracePeriodSeconds(0)) }) // no kubelet ends it
	return pod
}

// waitForBinding waits until a pod is bound.
func (l *testCluster) waitForBinding(pod *corev1.Pod) {
	l.Helper()
	clustertest.Eventually(l, func() error {
		if err := l.Get(l.Context(), client.ObjectKeyFromObject(pod), pod); err != nil {
			return err
		}
		if pod.Spec.NodeName == "" {
			return fmt.Errorf("%s has no node: %v", pod.Name, pod.Status.Conditions)
		}
		return nil
	})
}

// waitForTaint waits until the node has the taint, or no longer has it.
func (l *testCluster) waitForTaint(name string, want bool) {
	l.Helper()
	clustertest.Eventually(l, func() error {
		var node corev1.Node
		if err := l.Get(l.Context(), types.NamespacedName{Name: name}, &node); err != nil {
			return err
		}
		for _, taint := range node.Spec.Taints {
			if taint.Key == v1alpha1.TaintRepartitioning {
				if !want {
					return fmt.Errorf("%s is tainted: %s", name, taint.Value)
				}
				return nil
			}
		}
		if want {
			return fmt.Errorf("%s is not tainted", name)
		}
		return nil
	})
}

// waitForCondition waits until the pool's condition Planned has status, reason and message.
func (l *testCluster) waitForCondition(pool string, status metav1.ConditionStatus, reason, part string) {
	l.Helper()
	clustertest.Eventually(l, func() error {
		var p v1alpha1.NodePool
		if err := l.Get(l.Context(), types.NamespacedName{Name: pool}, &p); err != nil {
			return err
		}
		c := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionPlanned)
		if c == nil || c.Status != status || c.Reason != reason || !strings.Contains(c.Message, part) {
			return fmt.Errorf("condition is %+v", c)
		}
		return nil
	})
}

// TestInstancesAreCreatedForPods runs against a real scheduler with lifecycle's own rights, also
// across a restart of lifecycle. Unmet requests are reported, and without changes nothing is
// written.
func TestInstancesAreCreatedForPods(t *testing.T) {
	l := newTestCluster(t)
	namespace := clustertest.Namespace(t, clustertest.Start(t))
	copier := l.newCacheCopier()
	pool := &v1alpha1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "mig"}, Spec: v1alpha1.NodePoolSpec{
		NodeSelector: map[string]string{
			"mig": "yes",
		}, Scheduler: v1alpha1.SchedulerKube, Sharing: v1alpha1.SharingMIG, Compute: v1alpha1.ComputeFair,
	}}
	if err := l.Create(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Delete(context.Background(), pool) })
	l.createNode("mig-1")
	l.startControllers()
	l.waitForCondition("mig", metav1.ConditionTrue, planner.ReasonPlanned, "no pending pod")

	first := l.createPod(namespace, "first", "3g.20gb")
	l.waitForBinding(first)
	l.waitForTaint("mig-1", false)

	// Lifecycle restarts while the node is tainted.
	copier.paused.Store(true)
	second := l.createPod(namespace, "second", "7g.40gb")
	l.waitForTaint("mig-1", true)
	l.stop()
	l.startControllers()
	copier.paused.Store(false)
	l.waitForBinding(second)
	l.waitForTaint("mig-1", false)

	l.createPod(namespace, "third", "7g.40gb")
	l.waitForCondition(
		"mig", metav1.ConditionFalse, planner.ReasonInsufficientCapacity, "third requests 7g.40gb: pods that are not preempted hold",
	)
	l.createPod(namespace, "fourth", "5g.20gb")
	l.waitForCondition(
		"mig", metav1.ConditionFalse, planner.ReasonInsufficientCapacity,
		"fourth requests 5g.20gb: no GPU model of this pool has profile 5g.20gb; available are 1g.5gb, 2g.10gb",
	)
	l.requireNoWrites()
	l.requireForbidden()

	// A node that leaves the pool loses its GPUNode.
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "mig-1"}}
	if err := l.Patch(t.Context(), node, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"mig":null}}}`))); err != nil {
		t.Fatal(err)
	}
	clustertest.Eventually(t, func() error {
		err := l.Get(t.Context(), types.NamespacedName{Name: "mig-1"}, &v1alpha1.GPUNode{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("the GPUNode still exists (%w)", err)
	})
}

// requireNoWrites fails if objects are written again and again while nothing changes.
func (l *testCluster) requireNoWrites() {
	l.Helper()
	versions := func() string {
		var node corev1.Node
		var gpuNode v1alpha1.GPUNode
		var pool v1alpha1.NodePool
		for name, object := range map[string]client.Object{"mig-1": &node, "mig": &pool} {
			if err := l.Get(l.Context(), types.NamespacedName{Name: name}, object); err != nil {
				l.Fatal(err)
			}
		}
		if err := l.Get(l.Context(), types.NamespacedName{Name: "mig-1"}, &gpuNode); err != nil {
			l.Fatal(err)
		}
		return node.ResourceVersion + " " + gpuNode.ResourceVersion + " " + pool.ResourceVersion
	}
	const quietPeriod = 3 * time.Second // longer than any delay between two decisions
	before, since := versions(), time.Now()
	clustertest.Eventually(l, func() error { // a condition may still be due, on a busy machine for long
		if now := versions(); now != before {
			before, since = now, time.Now()
		}
		if time.Since(since) < quietPeriod {
			return errors.New("it is still writing")
		}
		return nil
	})
}

// requireForbidden checks that lifecycle's token changes only the taint, the labels that pause GPU clients,
// and sluice.dev/gpu-milli of a node.
func (l *testCluster) requireForbidden() {
	l.Helper()
	as, err := client.New(l.lifecycleConfig(), client.Options{Scheme: l.Scheme()})
	if err != nil {
		l.Fatal(err)
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "mig-1"}}
	for what, patch := range map[string]string{
		"another taint": `{"spec":{"taints":[{"key":"a","effect":"NoExecute"}]}}`,
		"a cordon":      `{"spec":{"unschedulable":true}}`,
		"a label":       `{"metadata":{"labels":{"a":"b"}}}`,
		"an annotation": `{"metadata":{"annotations":{"a":"b"}}}`,
		"a pool":        `{"metadata":{"labels":{"mig":"no"}}}`,
		"no label":      `{"metadata":{"labels":{"mig":null}}}`,
		"the agent":     `{"metadata":{"labels":{"nvidia.com/gpu.deploy.client":"paused-by-sluice"}}}`,
		"no client":     `{"metadata":{"labels":{"nvidia.com/gpu.deploy.dcgm":"false"}}}`,
		"their client":  `{"metadata":{"labels":{"nvidia.com/gpu.deploy.nvsm":"true"}}}`,
	} {
		if err := as.Patch(l.Context(), node.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(patch))); !apierrors.IsForbidden(err) {
			l.Errorf("%s: %v", what, err)
		}
	}
	for what, patch := range map[string]string{
		"other resources": `{"status":{"allocatable":{"nvidia.com/gpu":"8"}}}`,
		"conditions":      `{"status":{"conditions":[]}}`,
	} {
		err := as.Status().Patch(l.Context(), node.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(patch)))
		if !apierrors.IsForbidden(err) {
			l.Errorf("%s: %v", what, err)
		}
	}
	for _, key := range v1alpha1.GPUClientLabels() {
		if key == "nvidia.com/gpu.deploy.nvsm" {
			continue
		}
		for _, value := range []string{v1alpha1.GPUClientPaused, "true"} {
			patch := fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`, key, value)
			if err := as.Patch(l.Context(), node.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
				l.Errorf("%s: %s: %v", key, value, err)
			}
		}
	}
	capacity := client.RawPatch(types.MergePatchType, []byte(`{"status":{"allocatable":{"sluice.dev/gpu-milli":"2k"}}}`))
	if err := as.Status().Patch(l.Context(), node.DeepCopy(), capacity); err != nil {
		l.Errorf("sluice.dev/gpu-milli: %v", err)
	}
}
