// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package fakekubelet_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"sluice.dev/test/clustertest"
	"sluice.dev/test/lab/cluster/build"
	"sluice.dev/test/lab/cluster/fakekubelet"
	"sluice.dev/test/lab/cluster/kwok"
	"sluice.dev/test/lab/cluster/process"
)

const (
	namespace       = "sluice-sim"
	wholeGPUNode    = "dgx-1" // eight GPUs
	partitionedNode = "dgx-2" // 8 x (2 x 1g.5gb, 1 x 2g.10gb, 1 x 3g.20gb)
	emptyMIGNode    = "dgx-3" // eight GPUs in MIG mode

	configFile = "fakekubelet.yaml"
	// longExitDelay is longer than a test.
	longExitDelay = time.Hour

	// configVariable makes the test binary a fake kubelet in a separate process, which
	// tests can kill.
	configVariable = "SLUICE_TEST_FAKEKUBELET_CONFIG"
)

func TestMain(m *testing.M) {
	if path := os.Getenv(configVariable); path != "" {
		if err := runFromConfig(path); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	clustertest.Main(m, startSimulation)
}

func runFromConfig(path string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	cfg, err := fakekubelet.LoadConfig(path)
	if err != nil {
		return err
	}
	if err := advanceTime(path); err != nil {
		return err
	}
	return fakekubelet.Run(ctx, cfg)
}

// advanceTime advances the time of the fake kubelet to that of its file.
func advanceTime(config string) error {
	info, err := os.Stat(config)
	if err == nil {
		fakekubelet.AdvanceTime(max(0, time.Until(info.ModTime())))
	}
	return err
}

// endProcesses restarts the fake kubelet at a time at which the processes of ended pods have ended, too.
func (w *testEnv) endProcesses() {
	w.t.Helper()
	path := filepath.Join(w.cluster.Dir(), configFile)
	info, err := os.Stat(path)
	if err != nil {
		w.t.Fatal(err)
	}
	at := info.ModTime().Add(2 * longExitDelay)
	if err := os.Chtimes(path, at, at); err != nil {
		w.t.Fatal(err)
	}
	w.killComponent("fakekubelet")
}

// simulation runs kwok and the fake kubelet.
var simulation *process.Group

// startSimulation starts kwok and the fake kubelet, each with only its own rights.
func startSimulation(ctx context.Context, c *clustertest.Cluster) error {
	admin, err := client.New(c.Config(), client.Options{})
	if err != nil {
		return err
	}
	sim := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	if err := client.IgnoreAlreadyExists(admin.Create(ctx, sim)); err != nil {
		return err
	}
	for doc := range bytes.SplitSeq(bytes.Join([][]byte{kwok.RBAC, fakekubelet.RBAC}, []byte("\n---\n")), []byte("\n---\n")) {
		var object unstructured.Unstructured
		if err := yaml.Unmarshal(doc, &object.Object); err != nil {
			return err
		}
		if err := client.IgnoreAlreadyExists(admin.Create(ctx, &object)); err != nil {
			return err
		}
	}
	if simulation, err = process.NewGroup(filepath.Join(c.Dir(), "components")); err != nil {
		return err
	}
	c.BeforeStop(func() error { return simulation.Stop(context.WithoutCancel(ctx)) })
	return errors.Join(startKwok(ctx, c), startKubelet(ctx, c))
}

func startKwok(ctx context.Context, c *clustertest.Cluster) error {
	programs, err := build.Programs(ctx, os.Stderr, "kwok")
	if err != nil {
		return err
	}
	kubeconfig, err := c.ServiceAccountKubeconfig(ctx, namespace, "kwok")
	if err != nil {
		return err
	}
	command, err := kwok.Write(filepath.Join(c.Dir(), "kwok"), kwok.Options{Kubeconfig: kubeconfig})
	if err != nil {
		return err
	}
	return simulation.Start(ctx, process.Spec{Name: "kwok", Path: programs["kwok"], Args: command.Args, Env: command.Env})
}

func startKubelet(ctx context.Context, c *clustertest.Cluster) error {
	kubeconfig, err := c.ServiceAccountKubeconfig(ctx, namespace, "fakekubelet")
	if err != nil {
		return err
	}
	path := filepath.Join(c.Dir(), configFile)
	if err := fakekubelet.WriteConfig(path, fakekubelet.Config{
		Kubeconfig: kubeconfig,
		Dir:        c.Dir(),
		Nodes: []fakekubelet.Node{
			fakekubelet.DGXA100(wholeGPUNode, "dgx"), fakekubelet.DGXA100Balanced(partitionedNode, "dgx-mig"),
			fakekubelet.DGXA100MIG(emptyMIGNode, "dgx-mig"),
		},
	}); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	return simulation.Start(ctx, process.Spec{
		Name: "fakekubelet", Path: self, Env: []string{configVariable + "=" + path},
		Ready: func(ctx context.Context) error {
			for _, node := range []string{wholeGPUNode, partitionedNode, emptyMIGNode} {
				if _, err := listPodResources(ctx, socketOf(c.Dir(), node)); err != nil {
					return err
				}
			}
			return nil
		},
	})
}

func socketOf(dir, node string) string {
	return filepath.Join(dir, "nodes", node, "pod-resources", "kubelet.sock")
}

// withPodResources calls f with a PodResources client of a socket.
func withPodResources(socket string, f func(podresourcesv1.PodResourcesListerClient) error) error {
	connection, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	return errors.Join(f(podresourcesv1.NewPodResourcesListerClient(connection)), connection.Close())
}

func listPodResources(ctx context.Context, socket string) (pods []*podresourcesv1.PodResources, err error) {
	err = withPodResources(socket, func(c podresourcesv1.PodResourcesListerClient) error {
		response, err := c.List(ctx, &podresourcesv1.ListPodResourcesRequest{})
		pods = response.GetPodResources()
		return err
	})
	return pods, err
}

// testEnv is one test's view of the cluster: its own namespace on the shared nodes, which
// it empties at the end.
type testEnv struct {
	t         *testing.T
	cluster   *clustertest.Cluster
	client    kubernetes.Interface
	namespace string
}

func newTestEnv(t *testing.T) *testEnv {
	t.Helper()
	c := clustertest.Start(t)
	client, err := kubernetes.NewForConfig(c.Config())
	if err != nil {
		t.Fatal(err)
	}
	w := &testEnv{t: t, cluster: c, client: client, namespace: clustertest.Namespace(t, c)}
	t.Cleanup(w.deleteAllPods)
	return w
}

// deleteAllPods deletes the test's pods and waits until their devices are free.
func (w *testEnv) deleteAllPods() {
	ctx := context.Background()
	if err := w.client.BatchV1().Jobs(w.namespace).DeleteCollection(ctx, metav1.DeleteOptions{
		PropagationPolicy: new(metav1.DeletePropagationBackground),
	}, metav1.ListOptions{}); err != nil {
		w.t.Error(err)
	}
	clustertest.Eventually(w.t, func() error {
		pods, err := w.client.CoreV1().Pods(w.namespace).List(ctx, metav1.ListOptions{})
		if err != nil || len(pods.Items) == 0 {
			return err
		}
		for _, pod := range pods.Items {
			if len(pod.Finalizers) > 0 {
				pod.Finalizers = nil
				_, _ = w.client.CoreV1().Pods(w.namespace).Update(ctx, &pod, metav1.UpdateOptions{})
			}
			_ = w.client.CoreV1().Pods(w.namespace).Delete(ctx, pod.Name, *metav1.NewDeleteOptions(0))
		}
		return fmt.Errorf("%d pods remain", len(pods.Items))
	})
	clustertest.Eventually(w.t, func() error {
		for _, node := range []string{wholeGPUNode, partitionedNode, emptyMIGNode} {
			if left, _ := listProcesses(w.t, w.cluster.Dir(), node); len(left) > 0 {
				return fmt.Errorf("node %s has the processes %v", node, left)
			}
		}
		return nil
	})
}

// testPod is a pod with one container that runs until the pod is deleted.
type testPod struct{ *corev1.Pod }

func newTestPod(name string) testPod {
	return testPod{&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{
			RestartPolicy:                 corev1.RestartPolicyNever,
			TerminationGracePeriodSeconds: new(int64(1)),
			Containers:                    []corev1.Container{{Name: "main", Image: "pytorch:2.9"}},
		},
	}}
}

func (p testPod) with(change func(*corev1.Pod)) testPod { change(p.Pod); return p }

// onNode restricts the scheduler to this node; boundTo bypasses the scheduler.
func (p testPod) onNode(node string) testPod {
	return p.with(func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{corev1.LabelHostname: node} })
}

func (p testPod) boundTo(node string) testPod {
	return p.with(func(p *corev1.Pod) { p.Spec.NodeName = node })
}

func (p testPod) requesting(name string, quantity string) testPod {
	return p.with(func(p *corev1.Pod) {
		resources := &p.Spec.Containers[0].Resources
		if resources.Limits == nil {
			resources.Limits = corev1.ResourceList{}
		}
		resources.Limits[corev1.ResourceName(name)] = resource.MustParse(quantity)
	})
}

func (p testPod) requestingGPUs(n int) testPod {
	return p.requesting("nvidia.com/gpu", strconv.Itoa(n))
}

func (p testPod) withAnnotation(key, value string) testPod {
	return p.with(func(p *corev1.Pod) { metav1.SetMetaDataAnnotation(&p.ObjectMeta, key, value) })
}

func (p testPod) withGracePeriod(seconds int64) testPod {
	return p.with(func(p *corev1.Pod) { p.Spec.TerminationGracePeriodSeconds = &seconds })
}

func (w *testEnv) create(p testPod) *corev1.Pod {
	w.t.Helper()
	created, err := w.client.CoreV1().Pods(w.namespace).Create(w.t.Context(), p.Pod, metav1.CreateOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return created
}

func (w *testEnv) delete(name string, options metav1.DeleteOptions) {
	w.t.Helper()
	if err := w.client.CoreV1().Pods(w.namespace).Delete(w.t.Context(), name, options); err != nil {
		w.t.Fatal(err)
	}
}

// waitForPod waits until the pod fulfills the condition, and returns it.
func (w *testEnv) waitForPod(name string, condition func(*corev1.Pod) bool) *corev1.Pod {
	w.t.Helper()
	var found *corev1.Pod
	clustertest.Eventually(w.t, func() error {
		var err error
		if found, err = w.client.CoreV1().Pods(w.namespace).Get(w.t.Context(), name, metav1.GetOptions{}); err != nil {
			return err
		}
		if !condition(found) {
			return fmt.Errorf("pod %s is %s %s %q: %+v", name, found.Status.Phase, found.Status.Reason, found.Status.Message,
				found.Status.Conditions)
		}
		return nil
	})
	return found
}

func (w *testEnv) waitForPhase(name string, phase corev1.PodPhase) *corev1.Pod {
	w.t.Helper()
	return w.waitForPod(name, func(p *corev1.Pod) bool { return p.Status.Phase == phase })
}

// waitForDeletion waits until the pod is deleted.
func (w *testEnv) waitForDeletion(name string) {
	w.t.Helper()
	clustertest.Eventually(w.t, func() error {
		found, err := w.client.CoreV1().Pods(w.namespace).Get(w.t.Context(), name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return nil
		case err != nil:
			return err
		}
		return fmt.Errorf("pod %s still exists: %+v", name, found.Status)
	})
}

// createAndWaitRunning creates a pod and returns it when it is running.
func (w *testEnv) createAndWaitRunning(p testPod) *corev1.Pod {
	w.t.Helper()
	return w.waitForPhase(w.create(p).Name, corev1.PodRunning)
}

// deviceHolders returns the devices of this test's pods on a node: the sorted IDs by
// "pod/container".
func (w *testEnv) deviceHolders(node string) map[string][]string {
	w.t.Helper()
	listed, err := listPodResources(w.t.Context(), socketOf(w.cluster.Dir(), node))
	if err != nil {
		w.t.Fatal(err)
	}
	held := map[string][]string{}
	for _, p := range listed {
		for _, c := range p.Containers {
			for _, d := range c.Devices {
				if p.Namespace == w.namespace {
					held[p.Name+"/"+c.Name] = append(held[p.Name+"/"+c.Name], d.DeviceIds...)
				}
			}
		}
	}
	return held
}

func findCondition(p *corev1.Pod, kind corev1.PodConditionType) *corev1.PodCondition {
	i := slices.IndexFunc(p.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == kind })
	if i < 0 {
		return &corev1.PodCondition{}
	}
	return &p.Status.Conditions[i]
}
