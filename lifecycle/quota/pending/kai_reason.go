// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package pending

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workload"
	"sluice.dev/policies/kaigroup"
)

// Patterns of the messages of KAI-Scheduler 0.17 (pkg/scheduler/api/unschedule_info.go). The amounts in
// the details of a reason are rounded down to whole GPUs; those in the messages are exact.
var (
	overLimitPattern = regexp.MustCompile(`quota has reached the allowable limit of (GPUs|CPU cores|memory)\. ` +
		`Limit is (\S+) \S+, currently (\S+) \S+ allocated and workload requested (\S+) `)
	overGuaranteePattern = regexp.MustCompile(`Workload requested (\S+) (GPUs|CPU cores|GB memory), but .{1,200}? quota is (\S+) \S+, ` +
		`while (\S+) \S+ are already allocated for non-preemptible pods`)
)

// ExplainUnschedulable translates the reasons of KAI-Scheduler's latest condition of a group in a
// placement of the project.
func ExplainUnschedulable(reasons []kaigroup.UnschedulableReason, at kaigroup.Placement, project *v1alpha1.Project) Reason {
	var b reasonBuilder
	for _, reason := range reasons[:min(len(reasons), maxNamedWorkloads)] {
		holder := queueHolder(reason.Queue, at, project)
		limit, guarantee := overLimitPattern.FindStringSubmatch(reason.Message), overGuaranteePattern.FindStringSubmatch(reason.Message)
		switch {
		case limit != nil:
			summary := fmt.Sprintf("%s has reached its limit of %s in node pool %s", holder, limit[1], at.Pool)
			b.add(codeLimitReached, summary, fmt.Sprintf("%s (limit %s, %s in use, %s requested)", summary,
				formatKAIAmount(limit[2], limit[1], at), formatKAIAmount(limit[3], limit[1], at), formatKAIAmount(limit[4], limit[1], at)))
		case guarantee != nil:
			resource := strings.TrimPrefix(guarantee[2], "GB ")
			summary := fmt.Sprintf("%s has used its guarantee of %s in node pool %s, which is the limit of work that cannot be preempted",
				holder, resource, at.Pool)
			b.add(codeGuaranteeReached, summary, fmt.Sprintf("%s (guarantee %s, %s in use by such work, %s requested)", summary,
				formatKAIAmount(guarantee[3], resource, at), formatKAIAmount(guarantee[4], resource, at), formatKAIAmount(guarantee[1], resource, at)))
		default:
			b.addKAIReason(reason, at)
		}
	}
	if len(b.summaries) == 0 {
		b.add(codeOther, "KAI-Scheduler reports no reason", "KAI-Scheduler reports no reason")
	}
	return b.reason()
}

// addKAIReason adds a reason without amounts.
func (b *reasonBuilder) addKAIReason(reason kaigroup.UnschedulableReason, at kaigroup.Placement) {
	reported := "KAI-Scheduler reports: " + quoteMessage(reason.Message)
	switch reason.Reason {
	case "PodSchedulingErrors", "Not enough resources for the workload":
		summary := fmt.Sprintf("no node of node pool %s has room for it", at.Pool)
		b.add(codeNoRoom, summary, summary+" ("+reported+")")
	case "QueueDoesNotExist":
		summary := fmt.Sprintf("KAI-Scheduler has no queue %s", at.Queue)
		b.add(codeQueueUnavailable, summary, summary+"; contact an administrator")
	case "PreemptionDelayNotElapsed":
		const summary = "it may not preempt other work yet"
		b.add(codePreemptionDelayed, summary, summary+" ("+reported+")")
	default:
		b.add(codeOther, "KAI-Scheduler reports another reason", reported)
	}
}

// queueHolder returns what a queue belongs to. KAI's messages have the queue's display name, which
// can be that of a department and of a project.
func queueHolder(queue string, at kaigroup.Placement, project *v1alpha1.Project) string {
	switch queue {
	case at.Queue:
		return "project " + project.Name
	case at.DepartmentQueue(project.Spec.Department):
		return "department " + project.Spec.Department
	case "":
		return "its queue"
	}
	return "queue " + quoteMessage(queue)
}

// formatKAIAmount formats an amount of GPUs, CPU cores or memory in GB. On MIG pools KAI counts the
// compute slices of GPUs.
func formatKAIAmount(number, resource string, at kaigroup.Placement) string {
	value, err := strconv.ParseFloat(number, 64)
	switch {
	case err != nil || math.IsNaN(value) || math.IsInf(value, 0) || value < 0 || value > maxKueueCharge:
		return quoteMessage(number)
	case resource == "GPUs":
		return workload.Milli(math.Round(value * 1000 / float64(at.UnitsPerGPU))).Describe()
	case resource == "memory":
		return quoteMessage(number + " GB")
	}
	return quoteMessage(number + " " + resource)
}

// reasonBuilder collects the different reasons of a workload, the first of which gives the code.
type reasonBuilder struct {
	code               ReasonCode
	summaries, details []string
}

func (b *reasonBuilder) add(code ReasonCode, summary, detail string) {
	if b.code == "" {
		b.code = code
	}
	if !slices.Contains(b.summaries, summary) {
		b.summaries, b.details = append(b.summaries, summary), append(b.details, detail)
	}
}

func (b *reasonBuilder) reason() Reason {
	return Reason{
		Code:    b.code,
		Summary: singleLine(strings.Join(b.summaries, ", "), maxReasonSummary),
		Details: singleLine(strings.Join(b.details, "; "), maxReasonDetails),
	}
}
