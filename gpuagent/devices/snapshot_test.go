// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package devices

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"
	"k8s.io/utils/ptr"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/gpuagent/nvml"
)

// fakeLibrary is a driver of one GPU with the methods that the package calls.
type fakeLibrary struct {
	nvml.Library
	isWholeGPU bool
	err        error
	pci        uint32
}

const (
	gpuUUID1       = "GPU-8f6e2a04-0000-0000-0000-000000000000"
	migDeviceSmall = "MIG-aaaaaaaa-0000-0000-0000-000000000001"
	migDeviceOther = "MIG-aaaaaaaa-0000-0000-0000-000000000002"
	migDeviceLarge = "MIG-aaaaaaaa-0000-0000-0000-000000000003"
)

// pciA100 is the PCI identifier of an A100-SXM4-40GB.
const pciA100 = 0x20b010de

func (b fakeLibrary) GPUs() ([]nvml.GPU, error) {
	return []nvml.GPU{{UUID: gpuUUID1, PCIDevice: b.pci}}, b.err
}

func (b fakeLibrary) MIGMode(string) (nvml.Mode, nvml.Mode, error) {
	return nvml.Mode(!b.isWholeGPU), nvml.Mode(!b.isWholeGPU), nil
}

func (b fakeLibrary) Profiles(string) ([]nvml.Profile, error) {
	return []nvml.Profile{{ID: 19, Compute: 1, Memory: 1}, {ID: 9, Compute: 3, Memory: 4}}, nil
}

func (b fakeLibrary) Instances(string) ([]nvml.Instance, error) {
	return []nvml.Instance{{ID: 1, Profile: 19}, {ID: 2, Profile: 19}, {ID: 3, Profile: 9}, {ID: 4, Profile: 19}}, nil
}

func (b fakeLibrary) ComputeInstances(_ string, instance uint32) ([]nvml.ComputeInstance, error) {
	uuid, ok := map[uint32]string{1: migDeviceSmall, 2: migDeviceOther, 3: migDeviceLarge}[instance]
	if !ok {
		return nil, nil // without a compute instance: no device
	}
	return []nvml.ComputeInstance{{UUID: uuid}}, nil
}

type podOption func(*corev1.Pod)

func newPod(name string, options ...podOption) corev1.Pod {
	p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "h2", Name: name, UID: types.UID("uid-" + name)}}
	p.Status.StartTime = ptr.To(metav1.Unix(1_800_000_000, 0))
	for _, option := range options {
		option(&p)
	}
	return p
}

func containerWithLimit(name string, count int64) corev1.Container {
	return corev1.Container{Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{
		corev1.ResourceName(name): *resource.NewQuantity(count, resource.DecimalSI),
		corev1.ResourceCPU:        resource.MustParse("1"),
	}}}
}

func withLimit(name string, count int64) podOption {
	return func(p *corev1.Pod) { p.Spec.Containers = append(p.Spec.Containers, containerWithLimit(name, count)) }
}

func withInitLimit(name string, sidecar bool) podOption {
	return func(p *corev1.Pod) {
		c := containerWithLimit(name, 1)
		if sidecar {
			c.RestartPolicy = ptr.To(corev1.ContainerRestartPolicyAlways)
		}
		p.Spec.InitContainers = append(p.Spec.InitContainers, c)
	}
}

func inPhase(phase corev1.PodPhase) podOption { return func(p *corev1.Pod) { p.Status.Phase = phase } }

// unknownToKubelet makes a pod that the kubelet has yet to acknowledge.
func unknownToKubelet(p *corev1.Pod) { p.Status.StartTime = nil }

func initialized(p *corev1.Pod) {
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodInitialized, Status: corev1.ConditionTrue}}
}

// podResources returns a pod in the kubelet's list.
func podResources(name, resource string, ids ...string) *podresourcesv1.PodResources {
	return &podresourcesv1.PodResources{Namespace: "h2", Name: name, Containers: []*podresourcesv1.ContainerResources{
		{Devices: []*podresourcesv1.ContainerDevices{{ResourceName: resource, DeviceIds: ids}}},
	}}
}

const resourceMIG1g, resourceMIG3g, resourceGPU = "nvidia.com/mig-1g.5gb", "nvidia.com/mig-3g.20gb", "nvidia.com/gpu"

// otherGPUDevice is a device of another GPU that the kubelet offers.
const otherGPUDevice = "GPU-99999999-0000-0000-0000-000000000000"

func TestHolders(t *testing.T) {
	dra := podResources("claims", "none")
	dra.Containers[0].Devices = nil
	dra.Containers[0].DynamicResources = []*podresourcesv1.DynamicResource{{ClaimResources: []*podresourcesv1.ClaimResource{{DriverName: "gpu.nvidia.com"}}}}
	all := map[string]string{
		gpuUUID1: "pod h2/claims", migDeviceSmall: "pod h2/claims", migDeviceOther: "pod h2/claims",
		migDeviceLarge: "pod h2/claims",
	}
	claiming := newPod("claims")
	claiming.Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{Claims: []corev1.ResourceClaim{{Name: "some"}}}}}
	nic := podResources("claims", "none")
	nic.Containers[0].Devices = nil
	nic.Containers[0].DynamicResources = []*podresourcesv1.DynamicResource{{ClaimResources: []*podresourcesv1.ClaimResource{{DriverName: "nic.example.com"}}}}
	tests := map[string]struct {
		library fakeLibrary
		offered map[string]string
		held    []*podresourcesv1.PodResources
		pods    []corev1.Pod
		want    map[string]string
	}{
		"no pods": {want: map[string]string{}},
		"the kubelet gave it": {
			held: []*podresourcesv1.PodResources{podResources("train", resourceMIG3g, migDeviceLarge)},
			pods: []corev1.Pod{newPod("train", withLimit(resourceMIG3g, 1))},
			want: map[string]string{migDeviceLarge: "pod h2/train"},
		},
		"a pod that the API server has forgotten": {
			held: []*podresourcesv1.PodResources{podResources("gone", resourceMIG1g, migDeviceSmall)},
			want: map[string]string{migDeviceSmall: "pod h2/gone"},
		},
		"bound and waiting, so each of the profile": {
			held: []*podresourcesv1.PodResources{podResources("train", resourceMIG3g, migDeviceLarge), podResources("nb", resourceMIG1g)},
			pods: []corev1.Pod{newPod("train", withLimit(resourceMIG3g, 1)), newPod("nb", withLimit(resourceMIG1g, 1))},
			want: map[string]string{migDeviceLarge: "pod h2/train", migDeviceSmall: "pod h2/nb", migDeviceOther: "pod h2/nb"},
		},
		"waiting for one more": {
			held: []*podresourcesv1.PodResources{podResources("nb", resourceMIG1g, migDeviceSmall)},
			pods: []corev1.Pod{newPod("nb", withLimit(resourceMIG1g, 2))},
			want: map[string]string{migDeviceSmall: "pod h2/nb", migDeviceOther: "pod h2/nb"},
		},
		"the name of another driver for the profile": {
			pods: []corev1.Pod{newPod("train", withLimit("nvidia.com/mig-3g.19gb", 1))},
			want: map[string]string{migDeviceLarge: "pod h2/train"},
		},
		"a replica of a slice for which a pod waits": {
			pods: []corev1.Pod{newPod("train", withLimit("nvidia.com/mig-3g.20gb.shared", 1))},
			want: map[string]string{migDeviceLarge: "pod h2/train"},
		},
		"it has ended": {
			pods: []corev1.Pod{
				newPod("a", withLimit(resourceMIG1g, 1), inPhase(corev1.PodSucceeded)),
				newPod("b", withLimit(resourceMIG1g, 1), inPhase(corev1.PodFailed)),
			},
			want: map[string]string{},
		},
		"another profile, another vendor": {
			pods: []corev1.Pod{
				newPod("a", withLimit("nvidia.com/mig-2g.10gb", 1)), newPod("b", withLimit("amd.com/gpu", 1)),
				newPod("c", withLimit(resourceMIG1g, 0)),
			},
			want: map[string]string{},
		},
		"waiting for a whole GPU does not hold slices": {
			pods: []corev1.Pod{newPod("big", withLimit(resourceGPU, 1))},
			want: map[string]string{},
		},
		"unless the kubelet still offers this one": {
			offered: map[string]string{gpuUUID1: resourceGPU},
			pods:    []corev1.Pod{newPod("big", withLimit(resourceGPU, 1))},
			want:    map[string]string{gpuUUID1: "pod h2/big"},
		},
		"slices under the name of GPUs": {
			offered: map[string]string{migDeviceSmall: resourceGPU},
			pods:    []corev1.Pod{newPod("big", withLimit(resourceGPU, 1))},
			want:    map[string]string{migDeviceSmall: "pod h2/big"},
		},
		"a whole GPU": {
			library: fakeLibrary{isWholeGPU: true},
			held:    []*podresourcesv1.PodResources{podResources("big", resourceGPU, gpuUUID1)},
			pods:    []corev1.Pod{newPod("big", withLimit(resourceGPU, 1))},
			want:    map[string]string{gpuUUID1: "pod h2/big"},
		},
		"a whole GPU for which a pod waits": {
			library: fakeLibrary{isWholeGPU: true},
			pods:    []corev1.Pod{newPod("big", withLimit(resourceGPU, 1))},
			want:    map[string]string{gpuUUID1: "pod h2/big"},
		},
		"a replica of a shared GPU": {
			library: fakeLibrary{isWholeGPU: true},
			held:    []*podresourcesv1.PodResources{podResources("nb", "nvidia.com/gpu.shared", gpuUUID1+"::3")},
			pods:    []corev1.Pod{newPod("nb", withLimit("nvidia.com/gpu.shared", 1))},
			want:    map[string]string{gpuUUID1: "pod h2/nb"},
		},
		"NVIDIA's network cards": {
			library: fakeLibrary{isWholeGPU: true},
			held:    []*podresourcesv1.PodResources{podResources("mpi", "nvidia.com/mlnxnics", "0000:18:00.1")},
			pods:    []corev1.Pod{newPod("mpi", withLimit("nvidia.com/mlnxnics", 2))},
			want:    map[string]string{},
		},
		"GPUs under another name": {
			library: fakeLibrary{isWholeGPU: true},
			offered: map[string]string{gpuUUID1: "example.com/fast-gpu"},
			pods:    []corev1.Pod{newPod("big", withLimit("example.com/fast-gpu", 1))},
			want:    map[string]string{gpuUUID1: "pod h2/big"},
		},
		"an init container that runs": {
			pods: []corev1.Pod{newPod("nb", withInitLimit(resourceMIG3g, false))},
			want: map[string]string{migDeviceLarge: "pod h2/nb"},
		},
		"an init container that ran": {
			pods: []corev1.Pod{newPod("nb", withInitLimit(resourceMIG3g, false), initialized)},
			want: map[string]string{},
		},
		"a sidecar": {
			held: []*podresourcesv1.PodResources{podResources("nb", resourceMIG3g, migDeviceLarge)},
			pods: []corev1.Pod{newPod("nb", withInitLimit(resourceMIG3g, true), initialized)},
			want: map[string]string{migDeviceLarge: "pod h2/nb"},
		},
		"two pods of one name: unclear": {
			held: []*podresourcesv1.PodResources{podResources("nb", resourceMIG3g, migDeviceLarge), podResources("nb", resourceMIG3g)},
			pods: []corev1.Pod{newPod("nb", withLimit(resourceMIG3g, 1))},
			want: map[string]string{gpuUUID1: "pod h2/nb", migDeviceSmall: "pod h2/nb", migDeviceOther: "pod h2/nb", migDeviceLarge: "pod h2/nb"},
		},
		"a claim of dynamic resource allocation": {
			held: []*podresourcesv1.PodResources{dra},
			want: map[string]string{
				gpuUUID1: "pod h2/claims", migDeviceSmall: "pod h2/claims", migDeviceOther: "pod h2/claims",
				migDeviceLarge: "pod h2/claims",
			},
		},
		"one of the name held it, and the kubelet knows nothing of the next": {
			held: []*podresourcesv1.PodResources{podResources("train-0", resourceMIG1g, migDeviceSmall)},
			pods: []corev1.Pod{newPod("train-0", withLimit(resourceMIG1g, 1), unknownToKubelet)},
			want: map[string]string{migDeviceSmall: "pod h2/train-0", migDeviceOther: "pod h2/train-0"},
		},
		"a kubelet that was just started offers nothing": {
			offered: map[string]string{},
			pods:    []corev1.Pod{newPod("nb", withLimit(resourceGPU, 1))},
			want:    map[string]string{gpuUUID1: "pod h2/nb", migDeviceSmall: "pod h2/nb", migDeviceOther: "pod h2/nb", migDeviceLarge: "pod h2/nb"},
		},
		"a profile with an unknown name": {
			offered: map[string]string{migDeviceSmall: resourceMIG1g, otherGPUDevice: resourceGPU},
			pods:    []corev1.Pod{newPod("nb", withLimit("nvidia.com/mig-9g.99gb", 1))},
			want:    map[string]string{migDeviceOther: "pod h2/nb", migDeviceLarge: "pod h2/nb"},
		},
		"a claim that the kubelet does not report": {pods: []corev1.Pod{claiming}, want: all},
		"a claim of another vendor's": {
			held: []*podresourcesv1.PodResources{nic}, pods: []corev1.Pod{claiming}, want: map[string]string{},
		},
		"an unknown GPU model": {
			library: fakeLibrary{pci: 0x123410de},
			pods:    []corev1.Pod{newPod("nb", withLimit("nvidia.com/mig-2g.10gb", 1))},
			want:    map[string]string{migDeviceSmall: "pod h2/nb", migDeviceOther: "pod h2/nb", migDeviceLarge: "pod h2/nb"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if tc.library.pci == 0 {
				tc.library.pci = pciA100
			}
			offered := &podresourcesv1.AllocatableResourcesResponse{}
			if tc.offered == nil {
				tc.offered = map[string]string{otherGPUDevice: resourceGPU}
			}
			for id, resource := range tc.offered {
				offered.Devices = append(offered.Devices, &podresourcesv1.ContainerDevices{ResourceName: resource, DeviceIds: []string{id}})
			}
			held, err := newAssignments(offered, &podresourcesv1.ListPodResourcesResponse{PodResources: tc.held})
			if err != nil {
				t.Fatal(err)
			}
			holders, err := newSnapshot(tc.pods, held).Holders(tc.library, gpuUUID1)
			if err != nil {
				t.Fatal(err)
			}
			got := map[string]string{}
			for uuid, holder := range holders {
				got[uuid] = holder.String()
				if holder.Why == "" {
					t.Errorf("%s: no reason", uuid)
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// ObservedHolders returns the same holders without the driver.
func TestObservedHolders(t *testing.T) {
	gpu := &v1alpha1.ObservedGPU{
		UUID: gpuUUID1, DeviceID: "0x20B010DE", MIG: v1alpha1.MIGMode{Current: v1alpha1.MIGModeEnabled},
		Instances: []v1alpha1.ObservedInstance{
			{Profile: "1g.5gb", UUID: migDeviceSmall},
			{Profile: "1g.5gb", UUID: migDeviceOther},
			{Profile: "3g.20gb", UUID: migDeviceLarge},
		},
	}
	offered := &podresourcesv1.AllocatableResourcesResponse{Devices: []*podresourcesv1.ContainerDevices{{
		ResourceName: resourceGPU,
		DeviceIds:    []string{otherGPUDevice},
	}}}
	held, err := newAssignments(offered, &podresourcesv1.ListPodResourcesResponse{PodResources: []*podresourcesv1.PodResources{podResources("train", resourceMIG3g, migDeviceLarge)}})
	if err != nil {
		t.Fatal(err)
	}
	pods := []corev1.Pod{
		newPod("train", withLimit(resourceMIG3g, 1)), newPod("nb", withLimit(resourceMIG1g, 1)),
		newPod("big", withLimit(resourceGPU, 1)),
	}
	sight := &Snapshot{Pods: pods, assignments: held, claims: pendingClaims(pods, held)}
	want := map[string]string{migDeviceLarge: "pod h2/train", migDeviceSmall: "pod h2/nb", migDeviceOther: "pod h2/nb"}
	got := map[string]string{}
	for uuid, holder := range sight.ObservedHolders(gpu) {
		got[uuid] = holder.String()
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	gpu.MIG.Current = v1alpha1.MIGModeDisabled
	if holders := sight.ObservedHolders(gpu); holders["GPU-8f6e2a04-0000-0000-0000-000000000000"].Pod.Name != "big" || len(holders) != 1 {
		t.Errorf("%v", holders)
	}
}

// The device is unknown, so that nothing may change.
func TestDevicesWithoutUUIDAreRejected(t *testing.T) {
	for _, id := range []string{"0", gpuUUID1 + "-3", "MIG-" + gpuUUID1 + "/7/0", "GPU-"} {
		_, err := newAssignments(nil, &podresourcesv1.ListPodResourcesResponse{PodResources: []*podresourcesv1.PodResources{podResources("nb",
			resourceGPU, id)}})
		if err == nil || !strings.Contains(err.Error(), "h2/nb") {
			t.Errorf("%s: %v", id, err)
		}
	}
	if _, err := newAssignments(nil, &podresourcesv1.ListPodResourcesResponse{PodResources: []*podresourcesv1.PodResources{podResources("nic", "example.com/nic", "0")}}); err != nil {
		t.Errorf("another vendor's: %v", err)
	}
}

func TestHungDriverIsAnError(t *testing.T) {
	if _, err := (&Snapshot{}).Holders(fakeLibrary{err: nvml.ErrGPULost, pci: pciA100}, gpuUUID1); err == nil {
		t.Error("no error")
	}
	if _, err := (&Snapshot{}).Holders(fakeLibrary{pci: pciA100}, "GPU-another"); err == nil {
		t.Error("no error for a missing GPU")
	}
}

// The kubelet lists pods in any order. The holders of a shared device must not follow it, or every
// pass would write the status.
func TestKubeletOrderDoesNotMatter(t *testing.T) {
	a, b := podResources("a", resourceGPU, gpuUUID1+"::0"), podResources("b", resourceGPU, gpuUUID1+"::1")
	for _, order := range [][]*podresourcesv1.PodResources{{a, b}, {b, a}} {
		held, err := newAssignments(nil, &podresourcesv1.ListPodResourcesResponse{PodResources: order})
		if err != nil {
			t.Fatal(err)
		}
		sight := &Snapshot{assignments: held}
		holders, err := sight.Holders(fakeLibrary{isWholeGPU: true, pci: pciA100}, gpuUUID1)
		if err != nil || holders[gpuUUID1].Pod.Name != "a" {
			t.Errorf("%v, %v", holders, err)
		}
	}
}

func TestPodByUID(t *testing.T) {
	held, err := newAssignments(nil, &podresourcesv1.ListPodResourcesResponse{PodResources: []*podresourcesv1.PodResources{podResources("nb", resourceMIG1g, migDeviceOther, migDeviceSmall, migDeviceSmall+"::2")}})
	if err != nil {
		t.Fatal(err)
	}
	sight := &Snapshot{Pods: []corev1.Pod{newPod("nb")}, assignments: held}
	found, ok := sight.PodByUID("elsewhere", "uid-nb")
	if diff := cmp.Diff(v1alpha1.PodReference{UID: "uid-nb", Namespace: "h2", Name: "nb"}, found); diff != "" || !ok {
		t.Error(diff)
	}
	if diff := cmp.Diff([]v1alpha1.PodReference{found}, sight.PodsOnDevice(migDeviceSmall)); diff != "" {
		t.Error(diff)
	}
	if pods := sight.PodsOnDevice(migDeviceLarge); pods != nil {
		t.Errorf("%v", pods)
	}
	if _, ok := sight.PodByUID("elsewhere"); ok {
		t.Error("found")
	}
	// A container that creates a cgroup with the name of another pod's stays in its own pod. Guards
	// invariant 12: no pod's use counts for another.
	two := &Snapshot{Pods: []corev1.Pod{newPod("victim"), newPod("nb")}}
	if found, _ := two.PodByUID("uid-nb", "uid-victim"); found.Name != "nb" {
		t.Errorf("a process in a cgroup below that of pod nb counts for pod %s", found.Name)
	}
	if diff := cmp.Diff([]v1alpha1.PodUsage{{PodReference: found, Devices: []string{migDeviceSmall, migDeviceOther}}},
		sight.PodUses()); diff != "" {
		t.Error(diff)
	}
	sight = &Snapshot{assignments: held}
	if uses := sight.PodUses(); len(uses) != 1 || uses[0].UID != "h2/nb" {
		t.Errorf("a pod that the API server has forgotten: %+v", uses)
	}
}

// A scheduler may wait for minutes between its choice of the node and the binding. Guards invariant 7
// of the design.
func TestNominatedPodsAreClaims(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nominated := newPod("waits", withLimit(resourceMIG1g, 1))
		nominated.Status.StartTime, nominated.Status.NominatedNodeName = nil, "dgx-01"
		reader := &Reader{
			Node: "dgx-01", Kubelet: fixedKubelet{Offered: map[string]corev1.ResourceName{migDeviceSmall: resourceMIG1g}},
			ListBound: listPods(), ListNominated: listPods(nominated), Library: fakeLibrary{pci: pciA100},
		}
		inUse := func() bool {
			t.Helper()
			held, err := reader.InUse(t.Context(), gpuUUID1)
			if err != nil {
				t.Fatal(err)
			}
			_, found := held[migDeviceSmall]
			return found
		}
		if !inUse() {
			t.Error("the instance of a pod in its binding cycle counts as idle")
		}
		time.Sleep(nominationPeriod)
		if inUse() {
			t.Errorf("the nomination still counts after %s", nominationPeriod)
		}
	})
}

type fixedKubelet Assignments

func (k fixedKubelet) ListAssignments(context.Context) (Assignments, error) {
	return Assignments(k), nil
}

// Replicas of MIG devices are recognized by their identifiers, those of whole GPUs do not matter.
func TestReplicatedMIGDevices(t *testing.T) {
	offered := &podresourcesv1.AllocatableResourcesResponse{Devices: []*podresourcesv1.ContainerDevices{
		{ResourceName: resourceMIG1g, DeviceIds: []string{migDeviceSmall + "::0", migDeviceSmall + "::1"}},
		{ResourceName: "nvidia.com/mig-3g.20gb", DeviceIds: []string{migDeviceLarge}},
		{ResourceName: "nvidia.com/gpu", DeviceIds: []string{gpuUUID1 + "::0", gpuUUID1 + "::1"}},
	}}
	held, err := newAssignments(offered, nil)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]corev1.ResourceName{resourceMIG1g}, held.Replicated); diff != "" {
		t.Error(diff)
	}
}

// The replicas of a device count for the pods that hold them. Their number is unknown while the plugin offers
// none.
func TestReplicas(t *testing.T) {
	held, err := newAssignments(
		&podresourcesv1.AllocatableResourcesResponse{Devices: []*podresourcesv1.ContainerDevices{
			{ResourceName: resourceGPU, DeviceIds: []string{gpuUUID1 + "::0", gpuUUID1 + "::1", gpuUUID1 + "::2"}},
			{ResourceName: resourceMIG1g, DeviceIds: []string{migDeviceSmall}},
		}},
		&podresourcesv1.ListPodResourcesResponse{PodResources: []*podresourcesv1.PodResources{
			podResources("two", resourceGPU, gpuUUID1+"::0", gpuUUID1+"::2"), podResources("one", resourceGPU, gpuUUID1+"::1"),
			podResources("mig", resourceMIG1g, migDeviceOther+"::1"), podResources("cpu", "example.com/nic", "eth0"),
		}})
	if err != nil {
		t.Fatal(err)
	}
	s := KubeletSnapshot(held)
	pod := func(name string) types.NamespacedName { return types.NamespacedName{Namespace: "h2", Name: name} }
	for device, want := range map[string]int{gpuUUID1: 3, migDeviceSmall: -1, migDeviceOther: 0} {
		count, shared := s.Replicas(device)
		if !shared {
			count = -1
		}
		if count != want {
			t.Errorf("%d replicas of %s, want %d", count, device, want)
		}
	}
	for name, want := range map[string]int{"two": 2, "one": 1, "mig": 0, "cpu": 0, "gone": 0} {
		if got := s.HeldBy(gpuUUID1, pod(name)); got != want {
			t.Errorf("pod %s holds %d replicas, want %d", name, got, want)
		}
		if has, known := s.HasDevices(pod(name)); !known || has != (want > 0 || name == "mig") {
			t.Errorf("pod %s has devices: %v, %v", name, has, known)
		}
	}
}
