// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package pending

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workload"
	"sluice.dev/lifecycle/inventory"
	"sluice.dev/policies/input"
	"sluice.dev/policies/kaigroup"
)

const (
	// queueCheckDelay is how long KAI-Scheduler may take to count pods that were bound or ended, and
	// the interval of the checks while its usage differs, in machine time.
	queueCheckDelay = time.Minute
	// maxPodDifference is the difference for each pod that follows from rounding: KAI-Scheduler counts
	// hundredths of GPUs.
	maxPodDifference workload.Milli = 10
)

// queueCheck is the last comparison of a project's pods with the usage in KAI-Scheduler's Queues.
type queueCheck struct {
	// bound are the GPU quota and the number of the bound pods that were, or will be, compared at due.
	bound, pods poolCharges
	// terminating is the GPU quota of the bound pods that terminate. KAI-Scheduler counts them until
	// they end or their PodGroup is deleted.
	terminating poolCharges
	due         time.Time
	compared    bool
	difference  string
}

// compareQueues returns how the usage in the project's Queues of KAI-Scheduler differs from that of
// its bound pods; empty if it does not, or is not known. It compares a minute after the pods changed,
// and again each minute while the usage differs. The duration is that until the next comparison; 0 if
// none is due.
func (r *Reconciler) compareQueues(ctx context.Context, project *v1alpha1.Project, now time.Time) (string, time.Duration, error) {
	pools, err := inventory.ProjectPools(ctx, r.Client, project)
	if err != nil {
		return "", 0, err
	}
	places := kaigroup.Placements(project.Name, pools)
	if len(places) == 0 {
		delete(r.queueChecks, project.Name)
		return "", 0, nil
	}
	bound, pods, terminating := poolCharges{}, poolCharges{}, poolCharges{}
	for pod := range r.Pods.InNamespace(project.NamespaceName()) {
		if pod.Project == project.Name && pod.IsBound() {
			bound[pod.Pool] += pod.Milli
			pods[pod.Pool]++
			if pod.Deleting {
				terminating[pod.Pool] += pod.Milli
			}
		}
	}
	check, known := r.queueChecks[project.Name]
	if !known || !maps.Equal(check.bound, bound) || !maps.Equal(check.pods, pods) {
		check = queueCheck{bound: bound, pods: pods, due: now.Add(queueCheckDelay), difference: check.difference}
	}
	check.terminating = terminating
	if !now.Before(check.due) && (!check.compared || check.difference != "") {
		if check.difference, err = r.describeQueueDifferences(ctx, places, pools, &check); err != nil {
			return "", 0, err
		}
		check.compared, check.due = true, now.Add(queueCheckDelay)
	}
	r.queueChecks[project.Name] = check
	if check.compared && check.difference == "" {
		return "", 0, nil
	}
	return check.difference, check.due.Sub(now), nil
}

// describeQueueDifferences reads the Queues of the placements and describes those whose usage differs.
func (r *Reconciler) describeQueueDifferences(
	ctx context.Context, places []kaigroup.Placement, pools []input.NodePool, check *queueCheck,
) (string, error) {
	var differences []string
	for _, place := range places {
		queue := &unstructured.Unstructured{}
		queue.SetGroupVersionKind(kaigroup.QueueKind)
		err := r.Live.Get(ctx, types.NamespacedName{Name: place.Queue}, queue)
		if client.IgnoreNotFound(err) != nil && !meta.IsNoMatchError(err) {
			return "", fmt.Errorf("get queue %s: %w", place.Queue, err)
		}
		at := slices.IndexFunc(pools, func(pool input.NodePool) bool { return pool.Name == place.Pool })
		counted, known := queueUsage(queue, &pools[at])
		held := check.bound[place.Pool]
		if known && max(counted-held, held-check.terminating[place.Pool]-counted) > check.pods[place.Pool]*maxPodDifference {
			differences = append(differences, fmt.Sprintf("queue %s of KAI-Scheduler counts %s, and the bound pods hold %s of node pool %s",
				place.Queue, describeUsage(counted), describeUsage(held), place.Pool))
		}
	}
	return strings.Join(differences, "; "), nil
}

// queueUsage returns the allocated GPUs in a Queue's status, MIG instances by their charge. It returns
// false if the status has none, or MIG instances of unknown profiles.
func queueUsage(queue *unstructured.Unstructured, pool *input.NodePool) (sum workload.Milli, known bool) {
	allocated, known, err := unstructured.NestedStringMap(queue.Object, "status", "allocated")
	if err != nil || !known {
		return 0, false
	}
	for name, text := range allocated {
		amount, err := resource.ParseQuantity(text)
		switch {
		case name == "nvidia.com/gpu" && err == nil:
			sum += workload.Milli(amount.MilliValue())
		case strings.HasPrefix(name, v1alpha1.ResourceNVIDIAMIGPrefix):
			charge, found := profileCharge(pool, name)
			if err != nil || !found {
				return 0, false
			}
			sum += workload.Milli(amount.Value()) * charge
		case name == "nvidia.com/gpu":
			return 0, false
		}
	}
	return sum, true
}

func profileCharge(pool *input.NodePool, name string) (workload.Milli, bool) {
	for i := range pool.Products {
		for _, profile := range pool.Products[i].Profiles {
			if string(profile.Resource) == name {
				return profile.QuotaCharge, true
			}
		}
	}
	return 0, false
}

// describeUsage formats an amount that can be negative only if another program wrote it.
func describeUsage(milli workload.Milli) string { return max(0, milli).Describe() }

// setUsageDiffers sets the condition UsageDiffers. It stays absent until the usage differs for the
// first time.
func setUsageDiffers(status *v1alpha1.ProjectStatus, difference string, generation int64, now metav1.Time) {
	if difference == "" && meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionUsageDiffers) == nil {
		return
	}
	condition := metav1.Condition{
		Type: v1alpha1.ConditionUsageDiffers, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonUsageAgrees,
		Message: "the scheduler's usage is that of the bound pods", ObservedGeneration: generation, LastTransitionTime: now,
	}
	if difference != "" {
		condition.Status, condition.Reason = metav1.ConditionTrue, v1alpha1.ReasonSchedulerCountDiffers
		condition.Message = difference + "; status.gpu has the usage of the pods: look for pods that another scheduler bound, and read " +
			"the logs of KAI-Scheduler's controllers"
	}
	meta.SetStatusCondition(&status.Conditions, condition)
}
