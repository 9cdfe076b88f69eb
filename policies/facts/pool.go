// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workload"
)

// Pool is input.nodePool, or one of input.nodePools: with what the project, or the
// department, may have of it.
type Pool struct {
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
	// Currency is the resource in which its GPUs are counted, 1000 for each.
	Currency corev1.ResourceName `json:"currency"`
	// Guaranteed and Limit are how many of its GPUs the project, or the department,
	// may have: 0.5. Limit is what is guaranteed where nothing may be borrowed.
	Guaranteed workload.Milli `json:"guaranteed"`
	Limit      workload.Milli `json:"limit"`
	// Weight is its part in what is idle; 0 is none.
	Weight int32 `json:"weight"`
	// Promised is what was guaranteed to others of it: by the department to its
	// projects, by the node pool to all departments. It is 0 for a project.
	Promised workload.Milli `json:"promised"`
	// Boards are its kinds of GPU, sorted by product.
	Boards []Board `json:"boards"`
}

// Board is a kind of GPU in a pool.
type Board struct {
	// Product is its name: NVIDIA-H100-80GB-HBM3.
	Product string `json:"product"`
	// MemoryMiB is the memory of a whole GPU; 0 where it is not known.
	MemoryMiB int64 `json:"memoryMiB"`
	// Replicas is into how many replicas the device plugin divides each GPU; 0 or 1
	// where it does not.
	Replicas int32 `json:"replicas"`
	// ReplicaResource is the resource that stands for one of them; empty where there
	// are none.
	ReplicaResource string `json:"replicaResource"`
	// Profiles are the MIG profiles of the board, the smallest first.
	Profiles []Profile `json:"profiles"`
}

// Profile is a MIG profile of a board.
type Profile struct {
	// Name is the profile: 3g.40gb. Resource is what stands for a slice of it.
	Name     v1alpha1.MIGProfile `json:"name"`
	Resource corev1.ResourceName `json:"resource"`
	// Compute is how many of the board's compute slices it has.
	Compute int64 `json:"compute"`
	// MemoryMiB is its memory, rounded as the profile's name is: 40 GB are 40960.
	MemoryMiB int64 `json:"memoryMiB"`
	// Price is the part of a GPU that it is charged; see [Price].
	Price workload.Milli `json:"price"`
	// Plain tells that it has no attribute such as +me or +gfx: a share becomes such
	// a slice, the others are for those who ask for them by name.
	Plain bool `json:"plain"`
}

// OfPools are the pools of a project that exist, in its order.
func OfPools(project *v1alpha1.Project, pools func(name string) *v1alpha1.NodePool) []Pool {
	facts := make([]Pool, 0, len(project.Spec.NodePools))
	for _, quota := range project.Spec.NodePools {
		if pool := pools(quota.Name); pool != nil {
			facts = append(facts, ofPool(pool, quota.GPU))
		}
	}
	return facts
}

func ofPool(pool *v1alpha1.NodePool, quota v1alpha1.GPUQuota) Pool {
	facts := Pool{
		Name:         pool.Name,
		Scheduler:    pool.Spec.Scheduler,
		Sharing:      pool.Spec.Sharing,
		Compute:      pool.Spec.Compute,
		NodeSelector: orEmpty(pool.Spec.NodeSelector),
		Tolerations:  append([]corev1.Toleration{}, pool.Spec.Tolerations...),
		Unsupported:  unsupported(pool),
		Settings:     orEmpty(pool.Status.Settings),
		GPUs:         pool.Status.GPUs,
		Currency:     Currency(pool),
		Guaranteed:   milli(quota.Guaranteed),
		Limit:        milli(quota.Most()),
		Weight:       quota.Weight(),
		Boards:       make([]Board, 0, len(pool.Status.Boards)),
	}
	if facts.Sharing == "" {
		facts.Sharing = v1alpha1.SharingNone
	}
	if facts.Compute == "" {
		facts.Compute = v1alpha1.ComputeFair
	}
	for i := range pool.Status.Boards {
		facts.Boards = append(facts.Boards, ofBoard(&pool.Status.Boards[i]))
	}
	return facts
}

// unsupported is why a pool takes no pods. Nobody takes pods to where they would
// wait for ever.
func unsupported(pool *v1alpha1.NodePool) string {
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

func ofBoard(board *v1alpha1.Board) Board {
	facts := Board{
		Product:         board.Product,
		MemoryMiB:       board.MemoryMiB,
		Replicas:        board.Replicas,
		ReplicaResource: board.ReplicaResource,
		Profiles:        make([]Profile, 0, len(board.MIGProfiles)),
	}
	for _, name := range board.MIGProfiles {
		size, ok := sizeOf(name)
		if !ok {
			continue
		}
		facts.Profiles = append(facts.Profiles, Profile{
			Name:      name,
			Resource:  v1alpha1.ResourceMIG(name),
			Compute:   size.compute,
			MemoryMiB: size.memoryGB * 1024,
			Price:     Price(name, board.MemoryMiB),
			Plain:     size.plain,
		})
	}
	slices.SortStableFunc(facts.Profiles, smallerFirst)
	return facts
}

// Currency is the resource in which a pool's GPUs are counted. Engines whose
// quota cannot tell pools apart have one for each pool.
func Currency(pool *v1alpha1.NodePool) corev1.ResourceName {
	switch pool.Spec.Scheduler {
	case v1alpha1.SchedulerKube, v1alpha1.SchedulerYuniKorn:
		return v1alpha1.GPUMilliFor(pool.Name)
	default:
		return v1alpha1.ResourceGPUMilli
	}
}

// milli is a quantity of GPUs, which the schema holds to thousandths.
func milli(q resource.Quantity) workload.Milli { return workload.Milli(q.MilliValue()) }
