// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workload"
	"sluice.dev/policies/facts"
	"sluice.dev/policies/intent"
	"sluice.dev/policies/merge/value"
)

// Warn says what of the plan can never come about: of pods as this one, which
// the policies are done with, and of a project with these pools.
func Warn(plan Plan, pod map[string]any, project string, pools []facts.Pool) []intent.Complaint {
	charge, currency := chargeOf(pod)
	if charge == 0 || plan.Replicas == 0 {
		return nil
	}
	may, whose := allowance(pod, project, currency, pools)
	if charge > may {
		return nil // no such pod is let in, which is said elsewhere
	}
	if fit := int64(may / charge); fit < plan.Replicas {
		return []intent.Complaint{{
			Field: "spec.replicas",
			Message: fmt.Sprintf("%d pods of %s would count as %s; %s, so that no more than %d can run",
				plan.Replicas, charge.InWords(), (charge * workload.Milli(plan.Replicas)).InWords(), whose, fit),
			Fix: fmt.Sprintf("set it to %d, or ask an administrator of the department for more", fit),
		}}
	}
	// With a pod less first, a rolling update goes on however full the quota is.
	if !plan.Rolling || plan.Unavailable > 0 || charge*workload.Milli(plan.Replicas+1) <= may {
		return nil
	}
	return []intent.Complaint{{
		Field: "spec.strategy",
		Message: fmt.Sprintf("a rolling update of this Deployment would never end: it begins with a pod more than its %d of %s, and %s",
			plan.Replicas, charge.InWords(), whose),
		Fix: "set rollingUpdate to maxSurge: 0 and maxUnavailable: 1, or type to Recreate",
	}}
}

// chargeOf is what a pod is charged, and in which currency; 0 where it has none.
func chargeOf(pod map[string]any) (charge workload.Milli, currency corev1.ResourceName) {
	for _, container := range value.List(value.Map(pod["spec"])["containers"]) {
		for name, amount := range value.Map(value.Map(value.Map(container)["resources"])["requests"]) {
			if name != string(v1alpha1.ResourceGPUMilli) && !strings.HasPrefix(name, string(v1alpha1.ResourceGPUMilli)+".") {
				continue
			}
			if q, err := resource.ParseQuantity(fmt.Sprint(amount)); err == nil {
				charge, currency = charge+workload.Milli(q.Value()), corev1.ResourceName(name)
			}
		}
	}
	return charge, currency
}

// allowance is the most that pods like this one can ever be charged together,
// and that in words.
func allowance(pod map[string]any, project string, currency corev1.ResourceName, pools []facts.Pool) (may workload.Milli, whose string) {
	class, _ := value.Map(pod["spec"])["priorityClassName"].(string)
	stays := class == v1alpha1.PriorityClassInteractive || class == v1alpha1.PriorityClassInference
	var names []string
	for i := range pools {
		if pool := &pools[i]; pool.Currency == currency {
			names = append(names, pool.Name)
			if stays {
				may += min(pool.Guaranteed, pool.Limit)
			} else {
				may += pool.Limit
			}
		}
	}
	whose = fmt.Sprintf("project %s may have %s of node pool %s", project, may.InWords(), strings.Join(names, " and "))
	if stays {
		whose += " for pods that cannot be preempted"
	}
	return may, whose
}
