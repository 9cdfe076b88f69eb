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

// NodePool is input.nodePool, or one of input.nodePools: with what the project, or the
// department, may have of it.
type NodePool struct {
	// Name is the NodePool's name.
	Name string `json:"name"`
	// Scheduler, Sharing and Compute are those of the NodePool.
	Scheduler v1alpha1.Scheduler `json:"scheduler"`
	Sharing   v1alpha1.Sharing   `json:"sharing"`
	Compute   v1alpha1.Compute   `json:"compute"`
	// NodeSelector are the labels of its nodes.
	NodeSelector map[string]string `json:"nodeSelector"`
	// Tolerations are for every GPU pod that is sent there.
	Tolerations []corev1.Toleration `json:"tolerations"`
	// Unsupported says why the pool takes no pods: its scheduler is not written for,
	// or lacks what it needs. Empty where it does.
	Unsupported string `json:"unsupported"`
	// Settings are what was found in the configuration of the pool's engine.
	Settings map[string]string `json:"settings"`
	// GPUs is how many physical GPUs the pool has.
	GPUs int32 `json:"gpus"`
	// QuotaResource is the resource in which its GPUs are counted, 1000 for each.
	QuotaResource corev1.ResourceName `json:"currency"`
	// Guaranteed and Limit are how many of its GPUs the project, or the department,
	// may have: 0.5. Limit is what is guaranteed where nothing may be borrowed.
	Guaranteed workload.Milli `json:"guaranteed"`
	Limit      workload.Milli `json:"limit"`
	// Weight is its part in what is idle; 0 is none.
	Weight int32 `json:"weight"`
	// Subscribed is what was guaranteed to others of it: by the department to its
	// projects, by the node pool to all departments. It is 0 for a project.
	Subscribed workload.Milli `json:"promised"`
	// Products are its kinds of GPU, sorted by product.
	Products []GPUModel `json:"products"`
}

// GPUModel is a kind of GPU in a pool.
type GPUModel struct {
	// Name is its name: NVIDIA-H100-80GB-HBM3.
	Name string `json:"name"`
	// MemoryMiB is the memory of a whole GPU; 0 where it is not known.
	MemoryMiB int64 `json:"memoryMiB"`
	// Replicas is into how many replicas the device plugin divides each GPU; 0 or 1
	// where it does not.
	Replicas int32 `json:"replicas"`
	// ReplicaResource is the resource that stands for one of them; empty where there
	// are none.
	ReplicaResource string `json:"replicaResource"`
	// Profiles are the MIG profiles of the board, the smallest first.
	Profiles []MIGProfile `json:"profiles"`
}

// MIGProfile is a MIG profile of a board.
type MIGProfile struct {
	// Name is the profile: 3g.40gb. Resource is what stands for a slice of it.
	Name     v1alpha1.MIGProfile `json:"name"`
	Resource corev1.ResourceName `json:"resource"`
	// Compute is how many of the board's compute slices it has.
	Compute int64 `json:"compute"`
	// MemoryMiB is its memory, rounded as the profile's name is: 40 GB are 40960.
	MemoryMiB int64 `json:"memoryMiB"`
	// QuotaCharge is the part of a GPU that it is charged; see [Price].
	QuotaCharge workload.Milli `json:"price"`
	// Plain tells that it has no attribute such as +me or +gfx: a share becomes such
	// a slice, the others are for those who ask for them by name.
	Plain bool `json:"plain"`
}

// NewProjectPools are the pools of a project that exist, in its order.
func NewProjectPools(project *v1alpha1.Project, pools func(name string) *v1alpha1.NodePool) []NodePool {
	facts := make([]NodePool, 0, len(project.Spec.NodePools))
	for _, quota := range project.Spec.NodePools {
		if pool := pools(quota.Name); pool != nil {
			facts = append(facts, poolWithQuota(pool, quota.GPU))
		}
	}
	return facts
}

func poolWithQuota(pool *v1alpha1.NodePool, quota v1alpha1.GPUQuota) NodePool {
	facts := NodePool{
		Name:          pool.Name,
		Scheduler:     pool.Spec.Scheduler,
		Sharing:       pool.Spec.Sharing,
		Compute:       pool.Spec.Compute,
		NodeSelector:  publicMetadata(pool.Spec.NodeSelector),
		Tolerations:   append([]corev1.Toleration{}, pool.Spec.Tolerations...),
		Unsupported:   unsupportedReason(pool),
		Settings:      publicMetadata(pool.Status.Settings),
		GPUs:          pool.Status.GPUs,
		QuotaResource: QuotaResource(pool),
		Guaranteed:    toMilli(quota.Guaranteed),
		Limit:         toMilli(quota.MaxInUse()),
		Weight:        quota.Weight(),
		Products:      make([]GPUModel, 0, len(pool.Status.Products)),
	}
	if facts.Sharing == "" {
		facts.Sharing = v1alpha1.SharingNone
	}
	if facts.Compute == "" {
		facts.Compute = v1alpha1.ComputeFair
	}
	for i := range pool.Status.Products {
		facts.Products = append(facts.Products, newGPUModel(&pool.Status.Products[i]))
	}
	return facts
}

// unsupportedReason is why a pool takes no pods. Nobody takes pods to where they would
// wait for ever.
func unsupportedReason(pool *v1alpha1.NodePool) string {
	for _, why := range []struct {
		condition, reason string
		status            metav1.ConditionStatus
	}{
		{condition: v1alpha1.ConditionUnsupported, status: metav1.ConditionTrue},
		{v1alpha1.ConditionRequirementsMet, v1alpha1.ReasonRequirementsMissing, metav1.ConditionFalse},
	} {
		found := meta.FindStatusCondition(pool.Status.Conditions, why.condition)
		if found != nil && found.Status == why.status && (why.reason == "" || found.Reason == why.reason) {
			return found.Message
		}
	}
	return ""
}

func newGPUModel(board *v1alpha1.GPUModel) GPUModel {
	facts := GPUModel{
		Name:            board.Name,
		MemoryMiB:       board.MemoryMiB,
		Replicas:        board.Replicas,
		ReplicaResource: board.ReplicaResource,
		Profiles:        make([]MIGProfile, 0, len(board.MIGProfiles)),
	}
	for _, name := range board.MIGProfiles {
		size, ok := parseProfileSize(name)
		if !ok {
			continue
		}
		facts.Profiles = append(facts.Profiles, MIGProfile{
			Name:        name,
			Resource:    v1alpha1.ResourceMIG(name),
			Compute:     size.compute,
			MemoryMiB:   size.memoryGB * 1024,
			QuotaCharge: ProfileCharge(name, board.MemoryMiB),
			Plain:       size.plain,
		})
	}
	slices.SortStableFunc(facts.Profiles, compareProfiles)
	return facts
}

// QuotaResource is the resource in which a pool's GPUs are counted. Engines whose
// quota cannot tell pools apart have one for each pool.
func QuotaResource(pool *v1alpha1.NodePool) corev1.ResourceName {
	switch pool.Spec.Scheduler {
	case v1alpha1.SchedulerKube, v1alpha1.SchedulerYuniKorn:
		return v1alpha1.ResourceGPUMilliFor(pool.Name)
	default:
		return v1alpha1.ResourceGPUMilli
	}
}

// toMilli is a quantity of GPUs, which the schema holds to thousandths.
func toMilli(q resource.Quantity) workload.Milli { return workload.Milli(q.MilliValue()) }

// profileSize is what the name of a profile says.
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

// memorySlicesPerGPU is how many memory slices a board has that can be cut into seven
// compute slices; the boards with four have four, which are two each of these.
const memorySlicesPerGPU = 8

// ProfileCharge is the part of a GPU that a slice of a profile is charged: its memory
// slices over the board's, in eighths, so that no full layout costs more than
// its GPU. Where the board's memory is not known it is the whole GPU, which
// never lets more in than there is.
func ProfileCharge(profile v1alpha1.MIGProfile, boardMiB int64) workload.Milli {
	size, ok := parseProfileSize(profile)
	if !ok || boardMiB <= 0 {
		return 1000
	}
	// Names round to whole GB, boards keep some memory to themselves: the nearest
	// eighth is meant.
	eighths := (size.memoryGB*1024*memorySlicesPerGPU + boardMiB/2) / boardMiB
	return workload.Milli(1000 / memorySlicesPerGPU * max(1, min(memorySlicesPerGPU, eighths)))
}

// compareProfiles orders profiles by what they cost, then by their compute.
func compareProfiles(a, b MIGProfile) int {
	return cmp.Or(cmp.Compare(a.QuotaCharge, b.QuotaCharge), cmp.Compare(a.MemoryMiB, b.MemoryMiB),
		cmp.Compare(a.Compute, b.Compute), cmp.Compare(a.Name, b.Name))
}

// NewDepartmentPools are the pools of a department that exist, in its order, with
// what it may have of each, and what its projects are guaranteed of that. Of the
// projects only those count that are the department's.
func NewDepartmentPools(department *v1alpha1.Department, projects []v1alpha1.Project, pools func(name string) *v1alpha1.NodePool) []NodePool {
	facts := make([]NodePool, 0, len(department.Spec.NodePools))
	for _, quota := range department.Spec.NodePools {
		if pool := pools(quota.Name); pool != nil {
			told := poolWithQuota(pool, quota.GPU)
			told.Subscribed = guaranteedToProjects(quota.Name, projects)[department.Name]
			facts = append(facts, told)
		}
	}
	return facts
}

// NewNodePool is a pool as nobody's: with what is promised of it, and no quota. Of a
// department that promised its projects more than it has itself, that counts.
func NewNodePool(pool *v1alpha1.NodePool, departments []v1alpha1.Department, projects []v1alpha1.Project) NodePool {
	facts := poolWithQuota(pool, v1alpha1.GPUQuota{OverQuotaWeight: new(int32)})
	promised := guaranteedToProjects(pool.Name, projects)
	for i := range departments {
		own := sumGuaranteed(pool.Name, departments[i].Spec.NodePools)
		facts.Subscribed += max(own, promised[departments[i].Name])
	}
	return facts
}

// guaranteedToProjects is what projects are guaranteed of a pool, by their departments.
func guaranteedToProjects(pool string, projects []v1alpha1.Project) map[string]workload.Milli {
	promised := map[string]workload.Milli{}
	for i := range projects {
		promised[projects[i].Spec.Department] += sumGuaranteed(pool, projects[i].Spec.NodePools)
	}
	return promised
}

func sumGuaranteed(pool string, quotas []v1alpha1.PoolQuota) (sum workload.Milli) {
	for _, quota := range quotas {
		if quota.Name == pool {
			sum += toMilli(quota.GPU.Guaranteed)
		}
	}
	return sum
}
