// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package policies_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/input"
)

// The invariants of the corpus hold for the pods that the fuzzer derives from it, in projects of all
// kinds.
//
//	go test ./policies -run '^$' -fuzz PoliciesCommute -fuzztime 5m
//
// If a pod fails here and not alone, the engine returned the cached result of another pod.
func FuzzPoliciesCommute(f *testing.F) {
	corpus, courts := corpusPods(f), fuzzProjects(f)
	chance := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // the same seeds each time
	for i := range corpus {
		seed := []byte{byte(i), byte(i)}
		for range 1 + i%40 {
			seed = append(seed, byte(chance.IntN(256)), byte(chance.IntN(256)), byte(chance.IntN(256)), byte(chance.IntN(256)))
		}
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c := &fuzzChoices{data}
		pod, court := corpus[c.intn(len(corpus))].pod.DeepCopy(), pickOne(c, courts)
		for range 40 {
			if len(c.remaining) == 0 {
				break
			}
			pickOne(c, podEdits)(pod, c)
		}
		object := toUnstructured(t, pod)
		if err := court.checkInvariants(t.Context(), object); err != nil {
			t.Errorf("%v\npod: %s", err, encodePod(object))
		}
	})
}

// fuzzProjects are projects that the policies distinguish, by their rights and their pools.
func fuzzProjects(tb testing.TB) []*policyTester {
	tb.Helper()
	b := compilePolicies(tb, nil)
	var courts []*policyTester
	for _, word := range []string{"both", "whole", "slices", "queued"} {
		courts = append(courts, corpusProjects(b)[word])
	}
	for i := range allPools {
		courts = append(courts, &policyTester{policySets: b, project: testProject, pools: slices.Concat(allPools[i:], allPools[:i])})
	}
	broken, other := wholeGPUPool, wholeGPUPool
	broken.Unsupported = "it has no nodes"
	other.Name, other.Scheduler, other.NodeSelector = "other", v1alpha1.SchedulerKueue, map[string]string{"pool": "other", "zone": "a"}
	other.QuotaResource, other.GuaranteedResource = v1alpha1.ResourceGPUMilli, v1alpha1.ResourceGuaranteedMilli
	queued := migPool
	queued.Scheduler, queued.QuotaResource, queued.GuaranteedResource = v1alpha1.SchedulerKueue, other.QuotaResource, other.GuaranteedResource
	second := queued
	second.Name, second.NodeSelector, second.Tolerations = "second", map[string]string{"pool": "second"}, nil
	expired, unlimited := testProject, testProject
	expired.Phase, expired.Closed = v1alpha1.ProjectExpired, true
	unlimited.Limits, unlimited.Activity = nil, "100%/1h"
	parameters := map[string]string{
		"core.devices": `{"allowedCapabilities": ["SYS_PTRACE"], "allowedHostPaths": ["/data"], "refuseEnvFrom": false, "runtimeClasses": []}`,
		"core.limits":  `{"minimumGraceSeconds": 90}`, "core.quota": `{"allowClaims": true}`,
		"core.priority": `{"defaultClass": "high", "refuseOtherClasses": true}`,
	}
	return append(courts,
		&policyTester{policySets: b, project: testProject},
		&policyTester{policySets: b, project: testProject, pools: []input.NodePool{burstPool(), strictPool()}},
		&policyTester{policySets: b, project: testProject, pools: []input.NodePool{kaiBurstPool(), kaiSparePool}},
		&policyTester{policySets: b, project: expired, pools: allPools},
		&policyTester{policySets: b, project: unlimited, pools: []input.NodePool{broken, migPool, wholeGPUPool}},
		&policyTester{policySets: b, project: testProject, pools: []input.NodePool{queued, second, other, wholeGPUPool}},
		&policyTester{policySets: compilePolicies(tb, parameters), project: testProject, pools: allPools},
	)
}

// fuzzChoices makes choices from the fuzzer's bytes.
type fuzzChoices struct{ remaining []byte }

func (c *fuzzChoices) intn(n int) int {
	if len(c.remaining) == 0 || n == 0 {
		return 0
	}
	first := c.remaining[0]
	c.remaining = c.remaining[1:]
	return int(first) % n
}

func pickOne[T any](c *fuzzChoices, of []T) T { return of[c.intn(len(of))] }

// The values that are written into pods: those that policies read, and a few others.
var (
	containerNames = []string{"main", "side", "0", "*", "prepare", ""}
	resourceNames  = []corev1.ResourceName{
		"nvidia.com/gpu", "nvidia.com/mig-1g.5gb", "nvidia.com/mig-3g.20gb", "nvidia.com/mig-1g.5gb.me", "nvidia.com/gpu.shared",
		"nvidia.com/gpumem", "nvidia.com/gpumem-percentage", "nvidia.com/gpucores", "amd.com/gpu", "volcano.sh/vgpu-number", "volcano.sh/vgpu-memory",
		"koordinator.sh/gpu-core", "koordinator.sh/gpu", "sluice.dev/gpu-milli", "sluice.dev/gpu-milli.whole", "sluice.dev/gpu-milli.dgx-mig", "cpu", "memory",
	}
	quantities       = []string{"1", "0", "2", "4", "500m", "20000", "50", "1k", "-1", "1e30", "0.125"}
	environmentNames = []string{
		"NVIDIA_VISIBLE_DEVICES", "CUDA_MPS_PIPE_DIRECTORY", "CUDA_DEVICE_MEMORY_LIMIT_0", "NVIDIA_IMEX_CHANNELS", "CUDA_DISABLE_CONTROL",
		"RUNAI_GPU_MEMORY_LIMIT", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "NVIDIA_GPU_MEMORY_LIMIT", "A", "",
	}
	environmentValues = []string{"void", "all", "1", "0", "0.5", "0.3", "500m", "2", "8192", "1.7", "", "whole", "mig", "taken", "named", "mig,whole", "second,mig", "dgx,dgx-mig", "6h", "900h", "main", "side", "train", "interactive", "inference", "thesis"}
	annotationKeys    = []string{
		"sluice.dev/gpu", "gpu-fraction", "gpu-memory", "gpu-fraction-num-devices", "gpu-fraction-container-name", "sluice.dev/gpu-memory-limit",
		"gpu-memory.limit", "gpu-fraction.limit", "nvidia.com/container.main.gpu-memory.request", "sluice.dev/node-pools", "sluice.dev/max-runtime",
		"sluice.dev/time-limit", "sluice.dev/active", "sluice.dev/created-by", "sluice.dev/decisions", "sluice.dev/evaluated-under", "cdi.k8s.io/x", "kueue.x-k8s.io/role-hash", "a",
	}
	labelKeys       = []string{"sluice.dev/project", "sluice.dev/department", "sluice.dev/node-pool", "sluice.dev/workload-type", "notebook-name", "ray.io/originated-from-crd", "kueue.x-k8s.io/queue-name", "kueue.x-k8s.io/pod-group-name", "a"}
	priorityClasses = []string{"", "sluice-train", "sluice-interactive-preemptible", "sluice-interactive", "sluice-inference", "sluice-cpu", "system-node-critical", "high"}
	ownerReferences = []metav1.OwnerReference{
		{APIVersion: "apps/v1", Kind: "ReplicaSet"},
		{APIVersion: "apps/v1", Kind: "DaemonSet"},
		{APIVersion: "apps/v1", Kind: "StatefulSet"},
		{APIVersion: "batch/v1", Kind: "Job"},
		{APIVersion: "kubeflow.org/v1", Kind: "Notebook"},
		{APIVersion: "ray.io/v1", Kind: "RayCluster"},
	}
	mountPaths = []string{"/dev", "/var/run/nvidia-container-devices/0", "/data", "/", "/var/lib/kubelet"}
)

// podEdits are the changes that the fuzzer applies to a pod, with its choices as parameters.
var podEdits = []func(*corev1.Pod, *fuzzChoices){
	func(p *corev1.Pod, c *fuzzChoices) { setAmount(pickContainer(p, c), c) },
	func(p *corev1.Pod, c *fuzzChoices) { setAmount(pickContainer(p, c), c) },
	func(p *corev1.Pod, c *fuzzChoices) { setMetadata(&p.Annotations, pickOne(c, annotationKeys), c) },
	func(p *corev1.Pod, c *fuzzChoices) { setMetadata(&p.Annotations, pickOne(c, annotationKeys), c) },
	func(p *corev1.Pod, c *fuzzChoices) { setMetadata(&p.Labels, pickOne(c, labelKeys), c) },
	func(p *corev1.Pod, c *fuzzChoices) { addContainer(&p.Spec.Containers, c) },
	func(p *corev1.Pod, c *fuzzChoices) { addContainer(&p.Spec.InitContainers, c) },
	func(p *corev1.Pod, _ *fuzzChoices) {
		if n := len(p.Spec.Containers); n > 0 {
			p.Spec.Containers = slices.Delete(p.Spec.Containers, n-1, n)
		}
	},
	func(p *corev1.Pod, c *fuzzChoices) { pickContainer(p, c).Name = pickOne(c, containerNames) },
	func(p *corev1.Pod, c *fuzzChoices) { pickContainer(p, c).Resources = corev1.ResourceRequirements{} },
	func(p *corev1.Pod, c *fuzzChoices) {
		it := pickContainer(p, c)
		variable := corev1.EnvVar{Name: pickOne(c, environmentNames), Value: pickOne(c, environmentValues)}
		if c.intn(4) == 3 {
			variable.Value = ""
			variable.ValueFrom = &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{Key: "x"}}
		}
		it.Env = slices.Insert(it.Env, c.intn(len(it.Env)+1), variable)
	},
	func(p *corev1.Pod, c *fuzzChoices) {
		it := pickContainer(p, c)
		it.EnvFrom = append(it.EnvFrom, corev1.EnvFromSource{Prefix: pickOne(c, []string{"", "NVIDIA_", "A_"}), SecretRef: &corev1.SecretEnvSource{}})
	},
	func(p *corev1.Pod, c *fuzzChoices) { pickContainer(p, c).TTY = c.intn(2) == 0 },
	func(p *corev1.Pod, c *fuzzChoices) {
		pickContainer(p, c).RestartPolicy = ptr.To(corev1.ContainerRestartPolicyAlways)
	},
	func(p *corev1.Pod, c *fuzzChoices) {
		pickContainer(p, c).SecurityContext = &corev1.SecurityContext{
			Privileged:   ptr.To(c.intn(4) == 3),
			Capabilities: &corev1.Capabilities{Add: []corev1.Capability{pickOne(c, []corev1.Capability{"NET_BIND_SERVICE", "SYS_PTRACE", "SYS_ADMIN", "ALL"})}},
		}
	},
	func(p *corev1.Pod, c *fuzzChoices) {
		it := pickContainer(p, c)
		it.VolumeMounts = append(it.VolumeMounts, corev1.VolumeMount{Name: "a", MountPath: pickOne(c, mountPaths)})
	},
	func(p *corev1.Pod, c *fuzzChoices) {
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "a", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: pickOne(c, mountPaths)}}})
	},
	func(p *corev1.Pod, c *fuzzChoices) {
		p.Spec.Tolerations = append(p.Spec.Tolerations, corev1.Toleration{
			Key: pickOne(c, []string{"gpu", "nvidia.com/gpu", "", "a"}), Operator: pickOne(c, []corev1.TolerationOperator{"Exists", "", "Equal"}),
			Effect: pickOne(c, []corev1.TaintEffect{"", "NoSchedule", "NoExecute"}),
		})
	},
	func(p *corev1.Pod, c *fuzzChoices) {
		setMetadata(&p.Spec.NodeSelector, pickOne(c, []string{"pool", "zone", "sluice.dev/node-pool"}), c)
	},
	func(p *corev1.Pod, c *fuzzChoices) { requireNodes(p, c) },
	func(p *corev1.Pod, c *fuzzChoices) {
		if affinity := nodeAffinity(p); c.intn(3) > 0 {
			affinity.PreferredDuringSchedulingIgnoredDuringExecution = append(affinity.PreferredDuringSchedulingIgnoredDuringExecution, corev1.PreferredSchedulingTerm{Weight: 1, Preference: nodeSelectorTerm(c)})
		} else {
			affinity.RequiredDuringSchedulingIgnoredDuringExecution = nil
		}
	},
	func(p *corev1.Pod, c *fuzzChoices) {
		p.Spec.SchedulerName = pickOne(c, []string{"", "default-scheduler", "kai-scheduler", "mine"})
	},
	func(p *corev1.Pod, c *fuzzChoices) {
		p.Spec.PriorityClassName = pickOne(c, priorityClasses)
		if p.Spec.Priority = nil; c.intn(2) == 1 {
			p.Spec.Priority, p.Spec.PreemptionPolicy = ptr.To(int32(7)), ptr.To(corev1.PreemptNever)
		}
	},
	func(p *corev1.Pod, c *fuzzChoices) {
		p.Spec.TerminationGracePeriodSeconds = pickOne(c, []*int64{nil, ptr.To(int64(0)), ptr.To(int64(1)), ptr.To(int64(30)), ptr.To(int64(60)), ptr.To(int64(900))})
	},
	func(p *corev1.Pod, c *fuzzChoices) {
		p.Spec.RuntimeClassName = pickOne(c, []*string{nil, ptr.To("nvidia"), ptr.To(""), ptr.To("kata")})
	},
	func(p *corev1.Pod, c *fuzzChoices) {
		reference := pickOne(c, ownerReferences)
		reference.Controller = ptr.To(c.intn(4) != 3)
		p.OwnerReferences = []metav1.OwnerReference{reference}
	},
	func(p *corev1.Pod, c *fuzzChoices) {
		p.Spec.ResourceClaims = append(p.Spec.ResourceClaims, corev1.PodResourceClaim{Name: pickOne(c, containerNames), ResourceClaimName: ptr.To("a")})
	},
	func(p *corev1.Pod, c *fuzzChoices) {
		if p.Spec.Resources == nil {
			p.Spec.Resources = &corev1.ResourceRequirements{}
		}
		setAmounts(p.Spec.Resources, c)
	},
	func(p *corev1.Pod, _ *fuzzChoices) { p.Annotations, p.Labels = nil, nil },
	func(p *corev1.Pod, _ *fuzzChoices) { p.Spec.Containers = nil },
	func(p *corev1.Pod, c *fuzzChoices) { p.Spec.HostPID, p.Spec.HostIPC = c.intn(3) == 2, c.intn(3) == 2 },
}

// pickContainer returns a container of the pod, or a new one if the pod has none.
func pickContainer(p *corev1.Pod, c *fuzzChoices) *corev1.Container {
	var all []*corev1.Container
	for _, list := range [][]corev1.Container{p.Spec.Containers, p.Spec.InitContainers} {
		for i := range list {
			all = append(all, &list[i])
		}
	}
	return pickOne(c, append(all, &corev1.Container{})[:max(1, len(all))])
}

func addContainer(list *[]corev1.Container, c *fuzzChoices) {
	added := corev1.Container{Name: pickOne(c, containerNames), Image: "a"}
	if len(*list) > 0 && c.intn(3) == 2 {
		added = *(*list)[c.intn(len(*list))].DeepCopy() // twice the same
	}
	*list = append(*list, added)
}

func setAmount(it *corev1.Container, c *fuzzChoices) { setAmounts(&it.Resources, c) }

func setAmounts(of *corev1.ResourceRequirements, c *fuzzChoices) {
	name, amount := pickOne(c, resourceNames), resource.MustParse(pickOne(c, quantities))
	which := c.intn(4)
	if which != 3 {
		if of.Limits == nil {
			of.Limits = corev1.ResourceList{}
		}
		of.Limits[name] = amount
	}
	if which > 0 {
		if of.Requests == nil {
			of.Requests = corev1.ResourceList{}
		}
		of.Requests[name] = amount
	}
}

// setMetadata sets or removes annotations or labels.
func setMetadata(values *map[string]string, key string, c *fuzzChoices) {
	if _, there := (*values)[key]; there && c.intn(4) == 3 {
		delete(*values, key)
		return
	}
	if *values == nil {
		*values = map[string]string{}
	}
	(*values)[key] = pickOne(c, environmentValues)
}

func nodeAffinity(p *corev1.Pod) *corev1.NodeAffinity {
	if p.Spec.Affinity == nil {
		p.Spec.Affinity = &corev1.Affinity{}
	}
	if p.Spec.Affinity.NodeAffinity == nil {
		p.Spec.Affinity.NodeAffinity = &corev1.NodeAffinity{}
	}
	return p.Spec.Affinity.NodeAffinity
}

func requireNodes(p *corev1.Pod, c *fuzzChoices) {
	affinity := nodeAffinity(p)
	if affinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		affinity.RequiredDuringSchedulingIgnoredDuringExecution = &corev1.NodeSelector{}
	}
	required := affinity.RequiredDuringSchedulingIgnoredDuringExecution
	for range c.intn(3) {
		required.NodeSelectorTerms = append(required.NodeSelectorTerms, nodeSelectorTerm(c))
	}
}

// nodeSelectorTerm returns a term, which may be empty and then matches no node.
func nodeSelectorTerm(c *fuzzChoices) corev1.NodeSelectorTerm {
	var t corev1.NodeSelectorTerm
	for range c.intn(3) {
		requirement := corev1.NodeSelectorRequirement{
			Key:      pickOne(c, []string{"pool", "zone", "sluice.dev/node-pool", "metadata.name"}),
			Operator: pickOne(c, []corev1.NodeSelectorOperator{"In", "NotIn", "Exists", "Gt"}),
		}
		for range c.intn(3) {
			requirement.Values = append(requirement.Values, pickOne(c, environmentValues))
		}
		if c.intn(4) == 3 {
			t.MatchFields = append(t.MatchFields, requirement)
		} else {
			t.MatchExpressions = append(t.MatchExpressions, requirement)
		}
	}
	return t
}
