// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package input

import (
	"cmp"
	"regexp"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workload"
)

// NodePool is input.nodePool, or an element of input.nodePools with the quota of the project or department.
type NodePool struct {
	// Name is the NodePool's name.
	Name string `json:"name"`
	// Scheduler, Sharing and Compute are those of the NodePool.
	Scheduler v1alpha1.Scheduler `json:"scheduler"`
	Sharing   v1alpha1.Sharing   `json:"sharing"`
	Compute   v1alpha1.Compute   `json:"compute"`
	// Burst is Allow if pods may set a limit of GPU memory above their share, else Refuse.
	Burst v1alpha1.Burst `json:"burst"`
	// DriverReservePercent is the part of each GPU's memory that the driver reserves, in percent.
	DriverReservePercent int32 `json:"driverReservePercent"`
	// DriverLimits reports whether the driver of every node limits the GPU memory of a container, version 615 or newer,
	// and the NodePool lets Sluice use these limits. Always false for whole GPUs, MIG and MPS.
	DriverLimits bool `json:"driverLimits"`
	// NodeSelector are the labels of its nodes.
	NodeSelector map[string]string `json:"nodeSelector"`
	// TopologyKeys are the node labels by which pods may require anti-affinity, besides those of a node, a zone and a rack.
	TopologyKeys []string `json:"topologyKeys"`
	// Tolerations are added to every GPU pod of the pool.
	Tolerations []corev1.Toleration `json:"tolerations"`
	// Unsupported is the reason why the pool accepts no pods: Sluice does not support its scheduler, or the scheduler's
	// requirements are not met. Empty if the pool accepts pods.
	Unsupported string `json:"unsupported"`
	// Settings are values from the configuration of the pool's scheduler.
	Settings map[string]string `json:"settings"`
	// GPUs is the number of physical GPUs of the pool.
	GPUs int32 `json:"gpus"`
	// QuotaResource is the resource that counts its GPUs, 1000 for each.
	QuotaResource corev1.ResourceName `json:"quotaResource"`
	// GuaranteedResource is the resource that counts the GPUs of pods that cannot be preempted, beside QuotaResource.
	GuaranteedResource corev1.ResourceName `json:"guaranteedResource"`
	// QuotaApplied reports whether the scheduler has a quota of the project in this pool. While a changed quota is not
	// applied yet, the former one is in force. Always false without a project.
	QuotaApplied bool `json:"quotaApplied"`
	// Guaranteed and Limit are the GPU quota of the project or department, such as 0.5. Limit equals Guaranteed if the
	// project cannot borrow.
	Guaranteed workload.Milli `json:"guaranteed"`
	Limit      workload.Milli `json:"limit"`
	// Weight is the weight of its share of idle GPUs; 0 means no share.
	Weight int32 `json:"weight"`
	// Subscribed is the sum of the guarantees below: those of the department's projects, or those of all departments for
	// a node pool. It is 0 for a project.
	Subscribed workload.Milli `json:"subscribed"`
	// Products are its GPU models, sorted by name.
	Products []GPUModel `json:"products"`
	// NodeKinds are its kinds of nodes, by GPU model and number of GPUs. It is never empty: while no node's GPUs are known, it
	// has one without model and GPUs, which stands for all.
	NodeKinds []NodeKind `json:"nodeKinds"`
	// ResourceFactors are those of the NodePool's resourceShares.
	ResourceFactors ResourceFactors `json:"resourceFactors"`
	// Resources are the extended resources that the NodePool names as its GPUs, beyond those that Sluice knows.
	Resources []GPUResource `json:"resources"`
}

// GPUResource is an extended resource that a NodePool names as its GPU.
type GPUResource struct {
	// Name is the resource, and GPUs what one unit of it is, such as 1 or 0.5.
	Name string         `json:"name"`
	GPUs workload.Milli `json:"gpus"`
}

// NodeKind is a kind of nodes in a pool.
type NodeKind struct {
	// Product is the name of the GPU model, and GPUs the number of GPUs of one node.
	Product string `json:"product"`
	GPUs    int32  `json:"gpus"`
	// PerGPU is what each of the nodes offers at least for each GPU: cpu in thousandths of a CPU, and memory,
	// ephemeral-storage and hugepages-<size> in bytes. What none offers is left out.
	PerGPU map[string]int64 `json:"perGPU"`
}

// ResourceFactors are how many times its GPUs' share of a node a pod may request; 0 means that it is not limited.
type ResourceFactors struct {
	// NonPreemptible and Preemptible are for pods that cannot be preempted and those that can.
	NonPreemptible workload.Milli `json:"nonPreemptible"`
	Preemptible    workload.Milli `json:"preemptible"`
}

// GPUModel is a GPU model in a pool.
type GPUModel struct {
	// Name is the name of the model: NVIDIA-H100-80GB-HBM3.
	Name string `json:"name"`
	// MemoryMiB is the memory of a whole GPU; 0 if it is not known.
	MemoryMiB int64 `json:"memoryMiB"`
	// Replicas is the number of replicas of each GPU in the device plugin; 0 or 1 without replicas.
	Replicas int32 `json:"replicas"`
	// ReplicaResource is the resource of one replica; empty without replicas.
	ReplicaResource string `json:"replicaResource"`
	// Profiles are the MIG profiles of the model, in ascending order of size.
	Profiles []MIGProfile `json:"profiles"`
}

// MIGProfile is a MIG profile of a GPU model.
type MIGProfile struct {
	// Name is the profile, such as 3g.40gb, and Resource the resource of one instance.
	Name     v1alpha1.MIGProfile `json:"name"`
	Resource corev1.ResourceName `json:"resource"`
	// Compute is its number of compute slices.
	Compute int64 `json:"compute"`
	// MemoryMiB is its memory by the profile's name: 40 GB are 40960.
	MemoryMiB int64 `json:"memoryMiB"`
	// QuotaCharge is the GPU quota of one instance; see [ProfileCharge].
	QuotaCharge workload.Milli `json:"quotaCharge"`
	// Plain reports whether it has no attribute such as +me or +gfx. A fraction of a GPU becomes a plain slice; pods
	// request the others by name.
	Plain bool `json:"plain"`
}

// NewProjectPools returns input.nodePools of a project: its existing pools in the order of its spec.
func NewProjectPools(project *v1alpha1.Project, pools func(name string) *v1alpha1.NodePool) []NodePool {
	result := make([]NodePool, 0, len(project.Spec.NodePools))
	for _, quota := range project.Spec.NodePools {
		if pool := pools(quota.Name); pool != nil {
			projectPool := poolWithQuota(pool, quota.GPU)
			projectPool.QuotaApplied = isQuotaApplied(project, &quota)
			result = append(result, projectPool)
		}
	}
	return result
}

// isQuotaApplied reports whether a quota of the project is in force in the pool: the status has the pool's limit once the
// quota counts it. With another problem than a changed quota that is not counted yet, GPU pods are refused.
func isQuotaApplied(project *v1alpha1.Project, quota *v1alpha1.PoolQuota) bool {
	limit := quota.GPU.MaxInUse()
	applied := meta.FindStatusCondition(project.Status.Conditions, v1alpha1.ConditionQuotaApplied)
	return applied != nil && (applied.Status == metav1.ConditionTrue || applied.Reason == v1alpha1.ReasonQuotaNotCounted) &&
		slices.ContainsFunc(project.Status.NodePools, func(use v1alpha1.PoolUsage) bool {
			return use.Name == quota.Name && (use.Limit.Sign() > 0 || limit.IsZero())
		})
}

func poolWithQuota(pool *v1alpha1.NodePool, quota v1alpha1.GPUQuota) NodePool {
	result := NodePool{
		Name:          pool.Name,
		Scheduler:     pool.Spec.Scheduler,
		Sharing:       pool.Spec.Sharing,
		Compute:       pool.Spec.Compute,
		Burst:         pool.Spec.Burst,
		NodeSelector:  publicMetadata(pool.Spec.NodeSelector),
		TopologyKeys:  append([]string{}, pool.Spec.TopologyKeys...),
		Tolerations:   append([]corev1.Toleration{}, pool.Spec.Tolerations...),
		Unsupported:   unsupportedReason(pool),
		Settings:      publicMetadata(pool.Status.Settings),
		GPUs:          pool.Status.GPUs,
		QuotaResource: QuotaResource(pool),
		Guaranteed:    toMilli(quota.Guaranteed),
		Limit:         toMilli(quota.MaxInUse()),
		Weight:        quota.Weight(),
		Products:      make([]GPUModel, 0, len(pool.Status.Products)),
		Resources:     make([]GPUResource, len(pool.Spec.Resources)),

		GuaranteedResource:   GuaranteedResource(pool),
		DriverReservePercent: pool.Spec.DriverReserve(),
		DriverLimits:         pool.UsesDriverMemoryLimits(),
		NodeKinds:            newNodeKinds(pool.Status.NodeKinds),
		ResourceFactors: ResourceFactors{
			NonPreemptible: workload.Milli(pool.Spec.ResourceFactor(false)), Preemptible: workload.Milli(pool.Spec.ResourceFactor(true)),
		},
	}
	if result.Sharing == "" {
		result.Sharing = v1alpha1.SharingNone
	}
	if result.Compute == "" {
		result.Compute = v1alpha1.ComputeFair
	}
	if result.Burst == "" {
		result.Burst = v1alpha1.BurstRefuse
	}
	for i, named := range pool.Spec.Resources {
		result.Resources[i] = GPUResource{named.Name, toMilli(named.GPUs)}
	}
	for i := range pool.Status.Products {
		result.Products = append(result.Products, newGPUModel(&pool.Status.Products[i]))
	}
	return result
}

func newNodeKinds(kinds []v1alpha1.NodeKind) []NodeKind {
	if len(kinds) == 0 {
		kinds = []v1alpha1.NodeKind{{PerGPU: v1alpha1.DefaultPerGPU()}}
	}
	result := make([]NodeKind, len(kinds))
	for i := range kinds {
		result[i] = NodeKind{kinds[i].Product, kinds[i].GPUs, make(map[string]int64, len(kinds[i].PerGPU))}
		for name, quantity := range kinds[i].PerGPU {
			result[i].PerGPU[string(name)] = workload.NodeResourceAmount(name, quantity)
		}
	}
	return result
}

// unsupportedReason returns the reason why a pool accepts no pods, in which they would be pending forever. Other
// reasons of Unsupported name what the pool does not do for its pods.
func unsupportedReason(pool *v1alpha1.NodePool) string {
	for _, cause := range []struct {
		condition, reason string
		status            metav1.ConditionStatus
	}{
		{v1alpha1.ConditionUnsupported, v1alpha1.ReasonSchedulerMissing, metav1.ConditionTrue},
		{v1alpha1.ConditionRequirementsMet, v1alpha1.ReasonRequirementsMissing, metav1.ConditionFalse},
	} {
		found := meta.FindStatusCondition(pool.Status.Conditions, cause.condition)
		if found != nil && found.Status == cause.status && found.Reason == cause.reason {
			return found.Message
		}
	}
	return ""
}

func newGPUModel(model *v1alpha1.GPUModel) GPUModel {
	result := GPUModel{
		Name:            model.Name,
		MemoryMiB:       model.MemoryMiB,
		Replicas:        model.Replicas,
		ReplicaResource: model.ReplicaResource,
		Profiles:        make([]MIGProfile, 0, len(model.MIGProfiles)),
	}
	for _, name := range model.MIGProfiles {
		size, ok := parseProfileSize(name)
		if !ok {
			continue
		}
		result.Profiles = append(result.Profiles, MIGProfile{
			Name:        name,
			Resource:    v1alpha1.ResourceMIG(name),
			Compute:     size.compute,
			MemoryMiB:   size.memoryGB * 1024,
			QuotaCharge: ProfileCharge(name, model.MemoryMiB),
			Plain:       size.plain,
		})
	}
	slices.SortStableFunc(result.Profiles, compareProfiles)
	return result
}

// QuotaResource returns the resource that counts a pool's GPUs. Schedulers whose quota does not distinguish pools have
// one for each pool.
func QuotaResource(pool *v1alpha1.NodePool) corev1.ResourceName {
	switch pool.Spec.Scheduler {
	case v1alpha1.SchedulerKube, v1alpha1.SchedulerYuniKorn:
		return v1alpha1.ResourceGPUMilliFor(pool.Name)
	default:
		return v1alpha1.ResourceGPUMilli
	}
}

// GuaranteedResource returns the resource that counts the GPUs of a pool that pods hold which cannot be preempted. Kueue
// chooses the pool of a pod after its admission, and so such a pod is held to one pool and charged there.
func GuaranteedResource(pool *v1alpha1.NodePool) corev1.ResourceName {
	if pool.Spec.Scheduler == v1alpha1.SchedulerKueue {
		return v1alpha1.GuaranteedMilli(v1alpha1.ResourceGPUMilliFor(pool.Name))
	}
	return v1alpha1.GuaranteedMilli(QuotaResource(pool))
}

// toMilli converts a quantity of GPUs. The schema restricts it to thousandths.
func toMilli(q resource.Quantity) workload.Milli { return workload.Milli(q.MilliValue()) }

// profileSize is the size in the name of a MIG profile.
type profileSize struct {
	compute, memoryGB int64
	plain             bool
}

var profilePattern = regexp.MustCompile(`^([1-8])g\.([0-9]{1,4})gb(.*)$`)

func parseProfileSize(profile v1alpha1.MIGProfile) (profileSize, bool) {
	match := profilePattern.FindStringSubmatch(string(profile))
	if match == nil {
		return profileSize{}, false
	}
	compute, _ := strconv.ParseInt(match[1], 10, 64)
	memory, _ := strconv.ParseInt(match[2], 10, 64)
	return profileSize{compute, memory, match[3] == ""}, true
}

// memorySlicesPerGPU is the number of memory slices of a GPU with seven compute slices. GPUs with four compute slices
// have four memory slices, each of which counts as two.
const memorySlicesPerGPU = 8

// ProfileCharge returns the GPU quota of one instance of a MIG profile: its share of the GPU's memory in eighths, so that
// no full layout costs more than its GPU. If the GPU's memory is not known, it returns a whole GPU, which never admits
// too much.
func ProfileCharge(profile v1alpha1.MIGProfile, gpuMiB int64) workload.Milli {
	size, ok := parseProfileSize(profile)
	if !ok || gpuMiB <= 0 {
		return 1000
	}
	// Names are rounded to whole GB, and GPUs reserve some memory: the charge is the nearest eighth.
	eighths := (size.memoryGB*1024*memorySlicesPerGPU + gpuMiB/2) / gpuMiB
	return workload.Milli(1000 / memorySlicesPerGPU * max(1, min(memorySlicesPerGPU, eighths)))
}

// compareProfiles orders profiles by charge, then by memory and compute.
func compareProfiles(a, b MIGProfile) int {
	return cmp.Or(cmp.Compare(a.QuotaCharge, b.QuotaCharge), cmp.Compare(a.MemoryMiB, b.MemoryMiB),
		cmp.Compare(a.Compute, b.Compute), cmp.Compare(a.Name, b.Name))
}

// NewDepartmentPools returns input.nodePools of a department: its existing pools in the order of its spec, with its quota
// and the guarantees of its projects. It ignores the projects of other departments.
func NewDepartmentPools(
	department *v1alpha1.Department, projects []v1alpha1.Project, pools func(name string) *v1alpha1.NodePool,
) []NodePool {
	result := make([]NodePool, 0, len(department.Spec.NodePools))
	for _, quota := range department.Spec.NodePools {
		if pool := pools(quota.Name); pool != nil {
			departmentPool := poolWithQuota(pool, quota.GPU)
			departmentPool.Subscribed = guaranteedToProjects(quota.Name, projects)[department.Name]
			result = append(result, departmentPool)
		}
	}
	return result
}

// NewNodePool returns input.nodePool: a pool with all guarantees and no quota of its own. A department counts with its
// guarantee, or with the sum of its projects' guarantees if that is higher.
func NewNodePool(pool *v1alpha1.NodePool, departments []v1alpha1.Department, projects []v1alpha1.Project) NodePool {
	result := poolWithQuota(pool, v1alpha1.GPUQuota{OverQuotaWeight: new(int32)})
	guaranteed := guaranteedToProjects(pool.Name, projects)
	for i := range departments {
		own := sumGuaranteed(pool.Name, departments[i].Spec.NodePools)
		result.Subscribed += max(own, guaranteed[departments[i].Name])
	}
	return result
}

// guaranteedToProjects returns the guarantees of projects in a pool, by department.
func guaranteedToProjects(pool string, projects []v1alpha1.Project) map[string]workload.Milli {
	guaranteed := map[string]workload.Milli{}
	for i := range projects {
		guaranteed[projects[i].Spec.Department] += sumGuaranteed(pool, projects[i].Spec.NodePools)
	}
	return guaranteed
}

func sumGuaranteed(pool string, quotas []v1alpha1.PoolQuota) (sum workload.Milli) {
	for _, quota := range quotas {
		if quota.Name == pool {
			sum += toMilli(quota.GPU.Guaranteed)
		}
	}
	return sum
}
