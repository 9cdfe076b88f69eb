// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package occupancy

import (
	"strings"
	"testing"

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

// board is a driver of one GPU that is cut, or not; it has the methods that are asked.
type board struct {
	nvml.Library
	whole bool
	err   error
	pci   uint32
}

const (
	gpu   = "GPU-8f6e2a04-0000-0000-0000-000000000000"
	small = "MIG-aaaaaaaa-0000-0000-0000-000000000001"
	other = "MIG-aaaaaaaa-0000-0000-0000-000000000002"
	large = "MIG-aaaaaaaa-0000-0000-0000-000000000003"
)

// a100 is the PCI identifier of an A100-SXM4-40GB.
const a100 = 0x20b010de

func (b board) GPUs() ([]nvml.GPU, error) {
	return []nvml.GPU{{UUID: gpu, PCIDevice: b.pci}}, b.err
}

func (b board) MIGMode(string) (nvml.Mode, nvml.Mode, error) {
	return nvml.Mode(!b.whole), nvml.Mode(!b.whole), nil
}

func (b board) Profiles(string) ([]nvml.Profile, error) {
	return []nvml.Profile{{ID: 19, Compute: 1, Memory: 1}, {ID: 9, Compute: 3, Memory: 4}}, nil
}

func (b board) Instances(string) ([]nvml.Instance, error) {
	return []nvml.Instance{{ID: 1, Profile: 19}, {ID: 2, Profile: 19}, {ID: 3, Profile: 9}, {ID: 4, Profile: 19}}, nil
}

func (b board) ComputeInstances(_ string, instance uint32) ([]nvml.ComputeInstance, error) {
	uuid, ok := map[uint32]string{1: small, 2: other, 3: large}[instance]
	if !ok {
		return nil, nil // without a compute instance: no device
	}
	return []nvml.ComputeInstance{{UUID: uuid}}, nil
}

type podOption func(*corev1.Pod)

func pod(name string, options ...podOption) corev1.Pod {
	p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "h2", Name: name, UID: types.UID("uid-" + name)}}
	p.Status.StartTime = ptr.To(metav1.Unix(1_800_000_000, 0))
	for _, option := range options {
		option(&p)
	}
	return p
}

func asks(name string, count int64) corev1.Container {
	return corev1.Container{Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{
		corev1.ResourceName(name): *resource.NewQuantity(count, resource.DecimalSI),
		corev1.ResourceCPU:        resource.MustParse("1"),
	}}}
}

func asking(name string, count int64) podOption {
	return func(p *corev1.Pod) { p.Spec.Containers = append(p.Spec.Containers, asks(name, count)) }
}

func initAsking(name string, sidecar bool) podOption {
	return func(p *corev1.Pod) {
		c := asks(name, 1)
		if sidecar {
			c.RestartPolicy = ptr.To(corev1.ContainerRestartPolicyAlways)
		}
		p.Spec.InitContainers = append(p.Spec.InitContainers, c)
	}
}

func in(phase corev1.PodPhase) podOption { return func(p *corev1.Pod) { p.Status.Phase = phase } }

// fresh is a pod of which the kubelet has not said yet that it knows it.
func fresh(p *corev1.Pod) { p.Status.StartTime = nil }

func ready(p *corev1.Pod) {
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodInitialized, Status: corev1.ConditionTrue}}
}

// has is a pod in the kubelet's list.
func has(name, resource string, ids ...string) *podresourcesv1.PodResources {
	return &podresourcesv1.PodResources{Namespace: "h2", Name: name, Containers: []*podresourcesv1.ContainerResources{
		{Devices: []*podresourcesv1.ContainerDevices{{ResourceName: resource, DeviceIds: ids}}},
	}}
}

const mig1, mig3, gpus = "nvidia.com/mig-1g.5gb", "nvidia.com/mig-3g.20gb", "nvidia.com/gpu"

// elsewhere is a device of another GPU, which the kubelet offers.
const elsewhere = "GPU-99999999-0000-0000-0000-000000000000"

func TestHolders(t *testing.T) {
	dra := has("claims", "none")
	dra.Containers[0].Devices = nil
	dra.Containers[0].DynamicResources = []*podresourcesv1.DynamicResource{{ClaimResources: []*podresourcesv1.ClaimResource{{DriverName: "gpu.nvidia.com"}}}}
	all := map[string]string{gpu: "pod h2/claims", small: "pod h2/claims", other: "pod h2/claims", large: "pod h2/claims"}
	claiming := pod("claims")
	claiming.Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{Claims: []corev1.ResourceClaim{{Name: "some"}}}}}
	nic := has("claims", "none")
	nic.Containers[0].Devices = nil
	nic.Containers[0].DynamicResources = []*podresourcesv1.DynamicResource{{ClaimResources: []*podresourcesv1.ClaimResource{{DriverName: "nic.example.com"}}}}
	tests := map[string]struct {
		library board
		offered map[string]string
		held    []*podresourcesv1.PodResources
		pods    []corev1.Pod
		want    map[string]string
	}{
		"nobody": {want: map[string]string{}},
		"the kubelet gave it": {
			held: []*podresourcesv1.PodResources{has("train", mig3, large)},
			pods: []corev1.Pod{pod("train", asking(mig3, 1))},
			want: map[string]string{large: "pod h2/train"},
		},
		"a pod that the API server has forgotten": {
			held: []*podresourcesv1.PodResources{has("gone", mig1, small)},
			want: map[string]string{small: "pod h2/gone"},
		},
		"bound and waiting, so each of the profile": {
			held: []*podresourcesv1.PodResources{has("train", mig3, large), has("nb", mig1)},
			pods: []corev1.Pod{pod("train", asking(mig3, 1)), pod("nb", asking(mig1, 1))},
			want: map[string]string{large: "pod h2/train", small: "pod h2/nb", other: "pod h2/nb"},
		},
		"waiting for one more": {
			held: []*podresourcesv1.PodResources{has("nb", mig1, small)},
			pods: []corev1.Pod{pod("nb", asking(mig1, 2))},
			want: map[string]string{small: "pod h2/nb", other: "pod h2/nb"},
		},
		"the name of another driver for the profile": {
			pods: []corev1.Pod{pod("train", asking("nvidia.com/mig-3g.19gb", 1))},
			want: map[string]string{large: "pod h2/train"},
		},
		"a replica of a slice that somebody waits for": {
			pods: []corev1.Pod{pod("train", asking("nvidia.com/mig-3g.20gb.shared", 1))},
			want: map[string]string{large: "pod h2/train"},
		},
		"it has ended": {
			pods: []corev1.Pod{pod("a", asking(mig1, 1), in(corev1.PodSucceeded)), pod("b", asking(mig1, 1), in(corev1.PodFailed))},
			want: map[string]string{},
		},
		"another profile, another vendor": {
			pods: []corev1.Pod{pod("a", asking("nvidia.com/mig-2g.10gb", 1)), pod("b", asking("amd.com/gpu", 1)), pod("c", asking(mig1, 0))},
			want: map[string]string{},
		},
		"waiting for a whole GPU does not hold slices": {
			pods: []corev1.Pod{pod("big", asking(gpus, 1))},
			want: map[string]string{},
		},
		"unless the kubelet still offers this one": {
			offered: map[string]string{gpu: gpus},
			pods:    []corev1.Pod{pod("big", asking(gpus, 1))},
			want:    map[string]string{gpu: "pod h2/big"},
		},
		"slices under the name of GPUs": {
			offered: map[string]string{small: gpus},
			pods:    []corev1.Pod{pod("big", asking(gpus, 1))},
			want:    map[string]string{small: "pod h2/big"},
		},
		"a whole GPU": {
			library: board{whole: true},
			held:    []*podresourcesv1.PodResources{has("big", gpus, gpu)},
			pods:    []corev1.Pod{pod("big", asking(gpus, 1))},
			want:    map[string]string{gpu: "pod h2/big"},
		},
		"a whole GPU that somebody waits for": {
			library: board{whole: true},
			pods:    []corev1.Pod{pod("big", asking(gpus, 1))},
			want:    map[string]string{gpu: "pod h2/big"},
		},
		"a replica of a shared GPU": {
			library: board{whole: true},
			held:    []*podresourcesv1.PodResources{has("nb", "nvidia.com/gpu.shared", gpu+"::3")},
			pods:    []corev1.Pod{pod("nb", asking("nvidia.com/gpu.shared", 1))},
			want:    map[string]string{gpu: "pod h2/nb"},
		},
		"NVIDIA's network cards": {
			library: board{whole: true},
			held:    []*podresourcesv1.PodResources{has("mpi", "nvidia.com/mlnxnics", "0000:18:00.1")},
			pods:    []corev1.Pod{pod("mpi", asking("nvidia.com/mlnxnics", 2))},
			want:    map[string]string{},
		},
		"GPUs under another name": {
			library: board{whole: true},
			offered: map[string]string{gpu: "example.com/fast-gpu"},
			pods:    []corev1.Pod{pod("big", asking("example.com/fast-gpu", 1))},
			want:    map[string]string{gpu: "pod h2/big"},
		},
		"an init container that runs": {
			pods: []corev1.Pod{pod("nb", initAsking(mig3, false))},
			want: map[string]string{large: "pod h2/nb"},
		},
		"an init container that ran": {
			pods: []corev1.Pod{pod("nb", initAsking(mig3, false), ready)},
			want: map[string]string{},
		},
		"a sidecar": {
			held: []*podresourcesv1.PodResources{has("nb", mig3, large)},
			pods: []corev1.Pod{pod("nb", initAsking(mig3, true), ready)},
			want: map[string]string{large: "pod h2/nb"},
		},
		"two of one name: what they have is not clear": {
			held: []*podresourcesv1.PodResources{has("nb", mig3, large), has("nb", mig3)},
			pods: []corev1.Pod{pod("nb", asking(mig3, 1))},
			want: map[string]string{gpu: "pod h2/nb", small: "pod h2/nb", other: "pod h2/nb", large: "pod h2/nb"},
		},
		"a claim of dynamic resource allocation": {
			held: []*podresourcesv1.PodResources{dra},
			want: map[string]string{gpu: "pod h2/claims", small: "pod h2/claims", other: "pod h2/claims", large: "pod h2/claims"},
		},
		"one of the name held it, and the kubelet knows nothing of the next": {
			held: []*podresourcesv1.PodResources{has("train-0", mig1, small)},
			pods: []corev1.Pod{pod("train-0", asking(mig1, 1), fresh)},
			want: map[string]string{small: "pod h2/train-0", other: "pod h2/train-0"},
		},
		"a kubelet that was just started offers nothing": {
			offered: map[string]string{},
			pods:    []corev1.Pod{pod("nb", asking(gpus, 1))},
			want:    map[string]string{gpu: "pod h2/nb", small: "pod h2/nb", other: "pod h2/nb", large: "pod h2/nb"},
		},
		"a profile by a name that nobody knows": {
			offered: map[string]string{small: mig1, elsewhere: gpus},
			pods:    []corev1.Pod{pod("nb", asking("nvidia.com/mig-9g.99gb", 1))},
			want:    map[string]string{other: "pod h2/nb", large: "pod h2/nb"},
		},
		"a claim of which the kubelet tells nothing": {pods: []corev1.Pod{claiming}, want: all},
		"a claim of another vendor's": {
			held: []*podresourcesv1.PodResources{nic}, pods: []corev1.Pod{claiming}, want: map[string]string{},
		},
		"a board that is not known": {
			library: board{pci: 0x123410de},
			pods:    []corev1.Pod{pod("nb", asking("nvidia.com/mig-2g.10gb", 1))},
			want:    map[string]string{small: "pod h2/nb", other: "pod h2/nb", large: "pod h2/nb"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if tc.library.pci == 0 {
				tc.library.pci = a100
			}
			offered := &podresourcesv1.AllocatableResourcesResponse{}
			if tc.offered == nil {
				tc.offered = map[string]string{elsewhere: gpus}
			}
			for id, resource := range tc.offered {
				offered.Devices = append(offered.Devices, &podresourcesv1.ContainerDevices{ResourceName: resource, DeviceIds: []string{id}})
			}
			held, err := holdings(offered, &podresourcesv1.ListPodResourcesResponse{PodResources: tc.held})
			if err != nil {
				t.Fatal(err)
			}
			holders, err := sight(tc.pods, held).Holders(tc.library, gpu)
			if err != nil {
				t.Fatal(err)
			}
			got := map[string]string{}
			for uuid, holder := range holders {
				got[uuid] = holder.String()
				if holder.Why == "" {
					t.Errorf("%s: nobody says how that is known", uuid)
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// By a GPU as it was last observed the same is told, without the driver.
func TestReported(t *testing.T) {
	gpu := &v1alpha1.ObservedGPU{
		UUID: gpu, DeviceID: "0x20B010DE", MIG: v1alpha1.MIGMode{Current: v1alpha1.MIGModeEnabled},
		Instances: []v1alpha1.ObservedInstance{{Profile: "1g.5gb", UUID: small}, {Profile: "1g.5gb", UUID: other}, {Profile: "3g.20gb", UUID: large}},
	}
	offered := &podresourcesv1.AllocatableResourcesResponse{Devices: []*podresourcesv1.ContainerDevices{{ResourceName: gpus, DeviceIds: []string{elsewhere}}}}
	held, err := holdings(offered, &podresourcesv1.ListPodResourcesResponse{PodResources: []*podresourcesv1.PodResources{has("train", mig3, large)}})
	if err != nil {
		t.Fatal(err)
	}
	pods := []corev1.Pod{pod("train", asking(mig3, 1)), pod("nb", asking(mig1, 1)), pod("big", asking(gpus, 1))}
	sight := &Sight{Pods: pods, held: held, claims: claims(pods, held)}
	want := map[string]string{large: "pod h2/train", small: "pod h2/nb", other: "pod h2/nb"}
	got := map[string]string{}
	for uuid, holder := range sight.Reported(gpu) {
		got[uuid] = holder.String()
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	gpu.MIG.Current = v1alpha1.MIGModeDisabled
	if holders := sight.Reported(gpu); holders["GPU-8f6e2a04-0000-0000-0000-000000000000"].Pod.Name != "big" || len(holders) != 1 {
		t.Errorf("%v", holders)
	}
}

// Nobody knows which device that is, so nothing may be touched.
func TestDevicesWithoutUUIDAreAnError(t *testing.T) {
	for _, id := range []string{"0", gpu + "-3", "MIG-" + gpu + "/7/0", "GPU-"} {
		_, err := holdings(nil, &podresourcesv1.ListPodResourcesResponse{PodResources: []*podresourcesv1.PodResources{has("nb", gpus, id)}})
		if err == nil || !strings.Contains(err.Error(), "h2/nb") {
			t.Errorf("%s: %v", id, err)
		}
	}
	if _, err := holdings(nil, &podresourcesv1.ListPodResourcesResponse{PodResources: []*podresourcesv1.PodResources{has("nic", "example.com/nic", "0")}}); err != nil {
		t.Errorf("another vendor's: %v", err)
	}
}

func TestDriverThatDoesNotAnswerIsAnError(t *testing.T) {
	if _, err := (&Sight{}).Holders(board{err: nvml.ErrGPULost, pci: a100}, gpu); err == nil {
		t.Error("no error")
	}
	if _, err := (&Sight{}).Holders(board{pci: a100}, "GPU-another"); err == nil {
		t.Error("no error of a GPU that there is not")
	}
}

// The kubelet lists pods in any order; what is told of a shared device must not follow it,
// or the status would be written for ever.
func TestOrderOfTheKubeletIsOfNoAccount(t *testing.T) {
	a, b := has("a", gpus, gpu+"::0"), has("b", gpus, gpu+"::1")
	for _, order := range [][]*podresourcesv1.PodResources{{a, b}, {b, a}} {
		held, err := holdings(nil, &podresourcesv1.ListPodResourcesResponse{PodResources: order})
		if err != nil {
			t.Fatal(err)
		}
		sight := &Sight{held: held}
		holders, err := sight.Holders(board{whole: true, pci: a100}, gpu)
		if err != nil || holders[gpu].Pod.Name != "a" {
			t.Errorf("%v, %v", holders, err)
		}
	}
}

func TestSightByUID(t *testing.T) {
	held, err := holdings(nil, &podresourcesv1.ListPodResourcesResponse{PodResources: []*podresourcesv1.PodResources{has("nb", mig1, other, small, small+"::2")}})
	if err != nil {
		t.Fatal(err)
	}
	sight := &Sight{Pods: []corev1.Pod{pod("nb")}, held: held}
	found, ok := sight.ByUID("elsewhere", "uid-nb")
	if diff := cmp.Diff(v1alpha1.PodReference{UID: "uid-nb", Namespace: "h2", Name: "nb"}, found); diff != "" || !ok {
		t.Error(diff)
	}
	if diff := cmp.Diff([]v1alpha1.PodReference{found}, sight.On(small)); diff != "" {
		t.Error(diff)
	}
	if pods := sight.On(large); pods != nil {
		t.Errorf("%v", pods)
	}
	if _, ok := sight.ByUID("elsewhere"); ok {
		t.Error("found")
	}
	if diff := cmp.Diff([]v1alpha1.PodUse{{PodReference: found, Devices: []string{small, other}}}, sight.Uses()); diff != "" {
		t.Error(diff)
	}
	sight.Pods = nil
	if uses := sight.Uses(); len(uses) != 1 || uses[0].UID != "h2/nb" {
		t.Errorf("a pod that the API server has forgotten: %+v", uses)
	}
}
