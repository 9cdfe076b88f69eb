// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api"
	base "sluice.dev/api/config"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/gpuagent/agent"
	"sluice.dev/gpuagent/nvml"
	"sluice.dev/gpuagent/nvml/simulator"
	"sluice.dev/manifests"
	"sluice.dev/test/clustertest"
)

// fakePluginVariable, in the environment, makes this test binary a device plugin.
const fakePluginVariable = "SLUICE_TEST_PLUGIN"

func TestMain(m *testing.M) {
	if os.Getenv(fakePluginVariable) != "" {
		runFakePlugin()
		return
	}
	ctrl.SetLogger(logr.Discard())
	clustertest.Main(m, installCluster)
}

// runFakePlugin prints a line for each SIGHUP until its input ends.
func runFakePlugin() {
	hangups := make(chan os.Signal, 16)
	signal.Notify(hangups, syscall.SIGHUP)
	fmt.Println("ready")
	go func() {
		for range hangups {
			fmt.Println("hangup")
		}
	}()
	_, _ = bufio.NewReader(os.Stdin).ReadByte()
}

// installCluster installs the CRD of GPUNodes and the agent's RBAC.
func installCluster(ctx context.Context, c *clustertest.Cluster) error {
	admin, err := client.New(c.Config(), client.Options{})
	if err != nil {
		return err
	}
	objects, err := manifests.Build(manifests.Production)
	if err != nil {
		return err
	}
	for _, object := range objects {
		switch object.GetName() {
		case "gpunodes.sluice.dev", "sluice-gpuagent", "gpuagent", v1alpha1.AgentNamespace:
			if object.GetKind() == "DaemonSet" { // the agents run in the test
				continue
			}
			if err := admin.Create(ctx, object); err != nil && !apierrors.IsAlreadyExists(err) {
				return err
			}
		}
	}
	return nil
}

// testNode is a node with two GPUs by default, its kubelet, its device plugin and the API server.
type testNode struct {
	testing.TB
	cluster *clustertest.Cluster
	admin   client.Client
	name    string // of the node
	dir     string
	gpus    *simulator.Node
	// callTimeout is that of the agent; 0 for minutes, so that no call of a slow machine counts as hung.
	callTimeout time.Duration
	hook        atomic.Pointer[func(simulator.Call)]
	kubelet     *fakeKubelet
	hangups     atomic.Int64
	health      string // address

	logMutex sync.Mutex
	log      []string
}

// nextNumber makes names unique.
var nextNumber atomic.Int64

func newTestNode(t testing.TB) *testNode { return newTestNodeWith(t, 2) }

func newTestNodeWith(t testing.TB, gpus int) *testNode {
	t.Helper()
	c := clustertest.Start(t)
	kinds, err := api.NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	admin, err := client.New(c.Config(), client.Options{Scheme: kinds})
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "agent") // short enough for sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	w := &testNode{
		TB: t, cluster: c, admin: admin, dir: dir, name: fmt.Sprintf("dgx-%02d", nextNumber.Add(1)), kubelet: &fakeKubelet{},
		health: "127.0.0.1:0",
	}
	w.gpus, err = simulator.New(simulator.Config{
		Seed: w.name, Order: simulator.StableOrder,
		GPUs: slices.Repeat([]simulator.GPU{{Model: "A100-40GB", Mode: nvml.Enabled}}, gpus),
		Hooks: simulator.Hooks{Before: func(call simulator.Call) {
			if f := w.hook.Load(); f != nil {
				(*f)(call)
			}
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	w.serveSocket("nvml.sock", func(ctx context.Context, l net.Listener) { _ = simulator.Serve(ctx, l, w.gpus) })
	w.serveSocket("kubelet.sock", w.kubelet.serve)
	w.writeFile("proc/sys/kernel/random/boot_id", "2b7c0d5e-0000-4000-8000-000000000001\n")
	w.create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: w.name}})
	w.create(&v1alpha1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: w.name}})
	return w
}

func (w *testNode) create(o client.Object) {
	w.Helper()
	if err := w.admin.Create(w.Context(), o); err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { _ = w.admin.Delete(context.Background(), o, client.GracePeriodSeconds(0)) })
}

func (w *testNode) writeFile(path, text string) {
	w.Helper()
	path = filepath.Join(w.dir, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		w.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		w.Fatal(err)
	}
}

// serveSocket listens on a socket of the node until the test ends.
func (w *testNode) serveSocket(socket string, run func(context.Context, net.Listener)) {
	w.Helper()
	l, err := net.Listen("unix", filepath.Join(w.dir, socket))
	if err != nil {
		w.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	group.Go(func() { run(ctx, l) })
	w.Cleanup(func() { cancel(); group.Wait() })
}

// startDevicePlugin starts the device plugin.
func (w *testNode) startDevicePlugin() {
	w.Helper()
	self, err := os.Executable()
	if err != nil {
		w.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Args = []string{"nvidia-device-plugin"}
	cmd.Env = append(os.Environ(), fakePluginVariable+"=1")
	in, err := cmd.StdinPipe()
	if err != nil {
		w.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		w.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		w.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	if !lines.Scan() || lines.Text() != "ready" {
		w.Fatalf("the plugin printed %q", lines.Text())
	}
	var group sync.WaitGroup
	group.Go(func() {
		for lines.Scan() {
			w.hangups.Add(1)
		}
	})
	w.Cleanup(func() { _ = in.Close(); group.Wait(); _ = cmd.Wait() })
	pid := strconv.Itoa(cmd.Process.Pid)
	if err := os.Symlink("/proc/"+pid, filepath.Join(w.dir, "proc", pid)); err != nil {
		w.Fatal(err)
	}
}

// waitForSignals waits until the device plugin received more signals than before.
func (w *testNode) waitForSignals(before int64) {
	w.Helper()
	clustertest.Eventually(w.TB, func() error {
		if w.hangups.Load() <= before {
			return errors.New("the device plugin received no signal")
		}
		return nil
	})
}

// fakeKubelet reports the devices of pods.
type fakeKubelet struct {
	podresourcesv1.UnimplementedPodResourcesListerServer
	mu       sync.Mutex
	assigned map[string]string // device by pod
	mute     bool
}

// setFailing makes it return errors.
func (k *fakeKubelet) setFailing(mute bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.mute = mute
}

func (k *fakeKubelet) assign(pod, device string) {
	k.assignAll(map[string]string{pod: device})
}

// assignAll assigns each pod its device, and takes all others away.
func (k *fakeKubelet) assignAll(devices map[string]string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.assigned = devices
}

func (k *fakeKubelet) serve(ctx context.Context, l net.Listener) {
	server := grpc.NewServer()
	podresourcesv1.RegisterPodResourcesListerServer(server, k)
	stop := context.AfterFunc(ctx, server.Stop)
	defer stop()
	_ = server.Serve(l)
}

func (k *fakeKubelet) List(context.Context, *podresourcesv1.ListPodResourcesRequest) (*podresourcesv1.ListPodResourcesResponse, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.mute {
		return nil, errors.New("no answer")
	}
	answer := &podresourcesv1.ListPodResourcesResponse{}
	for pod, device := range k.assigned {
		answer.PodResources = append(answer.PodResources, &podresourcesv1.PodResources{
			Namespace: "default", Name: pod, Containers: []*podresourcesv1.ContainerResources{{
				Devices: []*podresourcesv1.ContainerDevices{{ResourceName: "nvidia.com/mig-3g.20gb", DeviceIds: []string{device}}},
			}},
		})
	}
	return answer, nil
}

func (k *fakeKubelet) GetAllocatableResources(context.Context,
	*podresourcesv1.AllocatableResourcesRequest,
) (*podresourcesv1.AllocatableResourcesResponse, error) {
	return &podresourcesv1.AllocatableResourcesResponse{}, nil
}

// newConfig returns the agent's configuration.
func (w *testNode) newConfig() *agent.Config {
	w.Helper()
	var cfg agent.Config
	if err := base.Parse([]byte(w.configFile("200ms")), &cfg); err != nil {
		w.Fatal(err)
	}
	cfg.HostRoot = "" // simulated GPUs have no device nodes
	if w.callTimeout != 0 {
		cfg.Intervals.CallTimeout.Duration = w.callTimeout
	}
	return &cfg
}

// configFile returns the agent's configuration file.
func (w *testNode) configFile(observe string) string {
	w.Helper()
	kubeconfig, err := w.cluster.NodeBoundKubeconfig(w.Context(), v1alpha1.AgentNamespace, "gpuagent", w.name)
	if err != nil {
		w.Fatal(err)
	}
	return strings.NewReplacer("DIR", w.dir, "NODE", w.name, "KUBECONFIG", kubeconfig, "OBSERVE", observe, "HEALTH", w.health).Replace(`
apiVersion: config.sluice.dev/v1alpha1
kind: GPUAgentConfig
kubeconfig: KUBECONFIG
metrics: 127.0.0.1:0
health: HEALTH
nodeName: NODE
proc: DIR/proc
sys: DIR/sys
podResources: DIR/kubelet.sock
stateDir: DIR/state
intervals: {observe: OBSERVE, retry: 1s, callTimeout: 5m}
`)
}

// startAgent runs the agent until the test ends or stop is called.
func (w *testNode) startAgent() (stop func()) {
	w.Helper()
	_, stop = w.startCancelableAgent()
	return stop
}

// startCancelableAgent is startAgent, and cancel lets the agent end without a wait for it.
func (w *testNode) startCancelableAgent() (cancel, stop func()) {
	w.Helper()
	cfg := w.newConfig()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- agent.Run(ctx, cfg, simulator.Dial(filepath.Join(w.dir, "nvml.sock")), funcr.New(w.keepLog, funcr.Options{}))
	}()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			w.Errorf("the agent: %v", err)
		}
	})
	w.Cleanup(stop)
	return cancel, stop
}

func (w *testNode) keepLog(_, line string) {
	w.logMutex.Lock()
	defer w.logMutex.Unlock()
	w.log = append(w.log, line)
}

// waitForLog waits until an agent of the node has logged the message.
func (w *testNode) waitForLog(message string) {
	w.Helper()
	clustertest.Eventually(w, func() error {
		w.logMutex.Lock()
		defer w.logMutex.Unlock()
		if !strings.Contains(strings.Join(w.log, "\n"), message) {
			return fmt.Errorf("no agent has logged %q", message)
		}
		return nil
	})
}

// gpuUUID returns the UUID of a GPU of the node.
func (w *testNode) gpuUUID(gpu int) v1alpha1.GPUUUID {
	w.Helper()
	driver := w.gpus.Open()
	if err := driver.Init(); err != nil {
		w.Fatal(err)
	}
	defer func() { _ = driver.Shutdown() }()
	list, err := driver.GPUs()
	if err != nil {
		w.Fatal(err)
	}
	return v1alpha1.GPUUUID(list[gpu].UUID)
}

// parseLayout parses a GPU's layout, as in "3g.20gb@0 1g.5gb@4".
func parseLayout(uuid v1alpha1.GPUUUID, text string) v1alpha1.DesiredGPU {
	gpu := v1alpha1.DesiredGPU{UUID: uuid, MIGEnabled: true}
	for word := range strings.FieldsSeq(text) {
		profile, at, _ := strings.Cut(word, "@")
		start, _ := strconv.Atoi(at)
		gpu.Instances = append(gpu.Instances, v1alpha1.DesiredInstance{Profile: v1alpha1.MIGProfile(profile), Start: int32(start)})
	}
	return gpu
}

// setSpec writes the spec as the planner does, and returns its generation.
func (w *testNode) setSpec(gpus ...v1alpha1.DesiredGPU) int64 {
	w.Helper()
	node := w.getGPUNode()
	node.Spec.GPUs = gpus
	if err := w.admin.Update(w.Context(), node); err != nil {
		w.Fatal(err)
	}
	return node.Generation
}

func (w *testNode) getGPUNode() *v1alpha1.GPUNode {
	w.Helper()
	var node v1alpha1.GPUNode
	if err := w.admin.Get(w.Context(), types.NamespacedName{Name: w.name}, &node); err != nil {
		w.Fatal(err)
	}
	return &node
}

// waitForStatus waits until the status satisfies a condition.
func (w *testNode) waitForStatus(what string, is func(*v1alpha1.GPUNode) error) *v1alpha1.GPUNode {
	w.Helper()
	var node *v1alpha1.GPUNode
	clustertest.Eventually(w.TB, func() error {
		node = w.getGPUNode()
		if err := is(node); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		return nil
	})
	return node
}

// hasCondition checks a condition's status and reason.
func hasCondition(kind string, status metav1.ConditionStatus, reason string) func(*v1alpha1.GPUNode) error {
	return func(node *v1alpha1.GPUNode) error {
		c := meta.FindStatusCondition(node.Status.Conditions, kind)
		if c == nil || c.Status != status || c.Reason != reason || c.ObservedGeneration != node.Generation {
			return fmt.Errorf("condition %s is %+v in generation %d, want %s %s", kind, c, node.Generation, status, reason)
		}
		return nil
	}
}

// isPartitioned checks that the spec was applied and the GPUs have these layouts.
func isPartitioned(want ...string) func(*v1alpha1.GPUNode) error {
	return func(node *v1alpha1.GPUNode) error {
		var got []string
		for i := range node.Status.GPUs {
			var list []string
			for _, it := range node.Status.GPUs[i].Instances {
				list = append(list, fmt.Sprintf("%s@%d", it.Profile, it.Start))
			}
			got = append(got, strings.Join(list, " "))
		}
		if strings.Join(got, ", ") != strings.Join(want, ", ") || node.Status.ObservedGeneration != node.Generation {
			return fmt.Errorf("layout %q in generation %d of %d, want %q", got, node.Status.ObservedGeneration, node.Generation, want)
		}
		return hasCondition(v1alpha1.ConditionLayoutApplied, metav1.ConditionTrue, v1alpha1.ReasonApplied)(node)
	}
}
