// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package pending

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workload"
	"sluice.dev/lifecycle/rendering/apply"
)

// Reasons of the events on a workload.
const (
	reasonQuotaExceeded  = "QuotaExceeded"
	reasonQuotaAvailable = "QuotaAvailable"
)

// maxNamedWorkloads is the largest number of workloads that the condition names. It only counts
// the others.
const maxNamedWorkloads = 10

// describeRejected returns the message of the event on a rejected workload.
func describeRejected(w *Workload, project *v1alpha1.Project, quota *corev1.ResourceQuota) string {
	return fmt.Sprintf("%s for GPU quota, %s%s: %s; the missing pods are created automatically when quota becomes available; "+
		"stop another workload of the project, or ask an administrator of department %s for more quota",
		pluralize(w.MissingPods, "pod waits", "pods wait"), eachPrefix(w.MissingPods), describeCharge(w),
		describeQuotaUse(w, project, quota), project.Spec.Department)
}

// describeQuotaUse returns how much of the quota is used.
func describeQuotaUse(w *Workload, project *v1alpha1.Project, quota *corev1.ResourceQuota) string {
	hard, used, found := apply.EnforcedLimit(quota, w.Resource)
	if !found {
		return fmt.Sprintf("the quota of project %s is used up", project.Name)
	}
	text := fmt.Sprintf("project %s uses %s of a limit of %s", project.Name, workload.Milli(used).Describe(), workload.Milli(hard).Describe())
	if v1alpha1.IsGuaranteedMilli(w.Resource) {
		text += " for pods that cannot be preempted"
	}
	if other := DescribeOtherGuarantee(quota, w.QuotaRejection); other != "" {
		text += "; " + other
	}
	return text
}

// DescribeOtherGuarantee returns which other node pool has room in its guarantee for a rejected pod, and how to ask for it; empty if
// none has. A pod that cannot be preempted is held to one pool.
func DescribeOtherGuarantee(quota *corev1.ResourceQuota, rejection QuotaRejection) string {
	if quota == nil || !v1alpha1.IsGuaranteedMilli(rejection.Resource) {
		return ""
	}
	for _, name := range slices.Sorted(maps.Keys(quota.Status.Hard)) {
		unit := corev1.ResourceName(strings.TrimPrefix(string(name), corev1.DefaultResourceRequestsPrefix))
		hard, used, _ := apply.EnforcedLimit(quota, unit)
		pool, isOther := v1alpha1.NodePoolOf(unit), v1alpha1.IsGuaranteedMilli(unit) && unit != rejection.Resource
		if pool != "" && isOther && hard-used >= int64(rejection.Charge) {
			return fmt.Sprintf("the guarantee in node pool %s has room: to use it, set the annotation %s to %s",
				pool, v1alpha1.AnnotationNodePools, pool)
		}
	}
	return ""
}

// summarizeRejected returns the message of the condition. It does not change while the same
// workloads are pending.
func summarizeRejected(pending []Workload) string {
	var total workload.Milli
	for i := range pending {
		total += pending[i].PendingCharge()
	}
	var names []string
	for i := range pending[:min(maxNamedWorkloads, len(pending))] {
		w := &pending[i]
		names = append(names, fmt.Sprintf("%s %s (%s of %s, since %s)",
			w.Root.Kind, w.Root.Name, pluralize(w.MissingPods, "pod", "pods"), describeCharge(w), w.Since.UTC().Format(time.RFC3339)))
	}
	list := strings.Join(names, ", ")
	if more := len(pending) - maxNamedWorkloads; more > 0 {
		list += fmt.Sprintf(" and %d more", more)
	}
	return fmt.Sprintf("%s for GPU quota, %s in total: %s; their pods are created when quota becomes available, the oldest workload first",
		pluralize(int32(len(pending)), "workload waits", "workloads wait"), total.Describe(), list)
}

// describeCharge returns the GPU quota that one pod needs, and in which node pool.
func describeCharge(w *Workload) string {
	if pool := w.NodePool(); pool != "" {
		return w.Charge.Describe() + " of node pool " + pool
	}
	return w.Charge.Describe()
}

func eachPrefix(pods int32) string {
	if pods == 1 {
		return ""
	}
	return "each "
}

func pluralize(n int32, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// Reason explains why a workload is queued.
type Reason struct {
	// Code is the reason in metrics.
	Code ReasonCode
	// Summary does not change while the reason is the same.
	Summary string
	// Details includes the current amounts.
	Details string
	// Transient is true if the reason is only valid until Kueue's next attempt.
	Transient bool
}

// Patterns of the messages of Kueue's scheduler. A flavor is a node pool.
var (
	insufficientUnusedPattern   = regexp.MustCompile(`insufficient unused quota for (\S+) in flavor (\S+), (\S+) more needed`)
	insufficientCapacityPattern = regexp.MustCompile(`insufficient quota for (\S+) in flavor (\S+), ` +
		`previously considered podsets requests \((\S*)\) \+ current podset request \((\S*)\) > maximum capacity \((\S*)\)`)
	affinityMismatchPattern  = regexp.MustCompile(`flavor (\S+) doesn't match node affinity`)
	pendingPreemptionPattern = regexp.MustCompile(`Pending the preemption of (\d{1,9}) workload\(s\)`)
	queueFaultPattern        = regexp.MustCompile(`^(LocalQueue|ClusterQueue) (\S*) ` +
		`(doesn't exist|not found|is inactive|is stopped|is terminating or missing)$`)
)

const maxQuotedMessage, maxReasonSummary, maxReasonDetails = 300, 200, 800

// ExplainQueued translates the message of Kueue's condition QuotaReserved for a workload that is
// not admitted.
func ExplainQueued(message string) Reason {
	var b reasonBuilder
	transient := false
	for _, m := range insufficientUnusedPattern.FindAllStringSubmatch(message, maxNamedWorkloads) {
		summary := "no free quota in node pool " + m[2]
		b.add(codeQuotaUsed, summary, fmt.Sprintf("%s (%s more needed)", summary, formatAmount(m[1], m[3])))
	}
	for _, m := range insufficientCapacityPattern.FindAllStringSubmatch(message, maxNamedWorkloads) {
		summary := fmt.Sprintf("the request exceeds the maximum of node pool %s", m[2])
		b.add(codeLimitReached, summary, fmt.Sprintf("%s: %s requested, at most %s allowed for the project",
			summary, formatSum(m[1], m[3], m[4]), formatAmount(m[1], m[5])))
	}
	for _, m := range affinityMismatchPattern.FindAllStringSubmatch(message, maxNamedWorkloads) {
		summary := fmt.Sprintf("its node selector does not match node pool %s", m[1])
		b.add(codeNodePoolMismatch, summary, summary)
	}
	switch m := queueFaultPattern.FindStringSubmatch(message); {
	case m != nil:
		summary := fmt.Sprintf("Kueue's %s %s %s", m[1], m[2], m[3])
		b.add(codeQueueUnavailable, summary, summary+"; contact an administrator")
	case strings.Contains(message, "no longer fits after processing another workload"),
		strings.Contains(message, "overlapping preemption targets with another workload"):
		b.add(codeQuotaUsed, "another workload got the quota", "another workload got the quota; Kueue retries immediately")
		transient = len(b.summaries) == 1
	case strings.Contains(message, "namespace doesn't match ClusterQueue selector"):
		b.add(codeQueueUnavailable, "the queue does not accept this namespace",
			"the queue does not accept this namespace; contact an administrator")
	case len(b.summaries) > 0:
	case message == "":
		b.add(codeNotEvaluated, "Kueue has not evaluated it yet", "Kueue has not evaluated it yet")
		transient = true
	default:
		b.add(codeOther, "Kueue reports another reason", "Kueue reports: "+quoteMessage(message))
	}
	why := b.reason()
	why.Transient = transient
	if m := pendingPreemptionPattern.FindStringSubmatch(message); m != nil {
		why.Details += fmt.Sprintf("; %s preempted for it", pluralizeText(m[1], "other workload is being", "other workloads are being"))
	}
	return why
}

// preemptorPattern finds the name of the preemptor in Kueue's message.
var preemptorPattern = regexp.MustCompile(`preemptor path: (?:/[^/;\s]+)*/([^/;\s]+)(?:;|$)`)

// ExplainEviction explains why Kueue stopped an admitted workload. reason and message are those
// of the condition Preempted, or of Evicted if the workload was not preempted.
func ExplainEviction(reason, message string) string {
	by := "another project"
	if m := preemptorPattern.FindStringSubmatch(message); m != nil && len(validation.IsDNS1123Subdomain(m[1])) == 0 {
		by = "project " + m[1]
	}
	switch reason {
	case "InClusterQueue":
		return "for a workload of the same project with precedence"
	case "InCohortReclamation":
		return fmt.Sprintf("for %s, which is guaranteed these GPUs; it ran over quota", by)
	case "InCohortFairSharing":
		// Kueue reports this also where the other project claimed its guarantee.
		return fmt.Sprintf("for %s, which had less than its guarantee or than its fair share of idle GPUs; it ran over quota", by)
	case "InCohortReclaimWhileBorrowing":
		return fmt.Sprintf("for %s, which has precedence; it ran over quota", by)
	default:
		return "by Kueue: " + quoteMessage(message)
	}
}

// formatAmount formats an amount of a resource: 2.5 GPUs for the GPU quota unit, else "3 cpu".
func formatAmount(name, number string) string {
	if q, err := resource.ParseQuantity(number); err == nil && v1alpha1.IsGPUCharge(corev1.ResourceName(name)) && q.Sign() >= 0 {
		return workload.Milli(q.Value()).Describe()
	}
	return quoteMessage(number + " " + name)
}

// formatSum formats the sum of two amounts.
func formatSum(name, a, b string) string {
	first, err := resource.ParseQuantity(a)
	second, err2 := resource.ParseQuantity(b)
	if err != nil || err2 != nil {
		return formatAmount(name, b)
	}
	first.Add(second)
	return formatAmount(name, first.String())
}

// quoteMessage shortens a foreign message and removes line breaks and control characters.
func quoteMessage(message string) string { return singleLine(message, maxQuotedMessage) }

// singleLine removes line breaks and control characters and limits the text to most characters.
func singleLine(text string, most int) string {
	clean := strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case !unicode.IsPrint(r), r == unicode.ReplacementChar:
			return -1
		}
		return r
	}, text)
	clean = strings.Join(strings.Fields(clean), " ")
	if runes := []rune(clean); len(runes) > most {
		return string(runes[:most]) + "…"
	}
	return clean
}

func pluralizeText(number, one, many string) string {
	if number == "1" {
		return "1 " + one
	}
	return number + " " + many
}
