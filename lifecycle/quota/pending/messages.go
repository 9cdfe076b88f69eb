// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package pending

import (
	"fmt"
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
)

// Reasons of the events on a workload.
const (
	reasonWaitingForQuota = "WaitingForQuota"
	reasonQuotaAvailable  = "QuotaAvailable"
)

// maxNamedWorkloads is how many workloads the condition names before it only counts.
const maxNamedWorkloads = 10

// describeRejected says to its author why a workload waits, and what to do.
func describeRejected(w *Workload, project *v1alpha1.Project, quotas []corev1.ResourceQuota) string {
	return fmt.Sprintf("%s for GPU quota, %s%s: %s; what is missing is made as soon as there is room, by itself; end something of the project, or ask an administrator of department %s for more",
		pluralize(w.MissingPods, "pod waits", "pods wait"), eachPrefix(w.MissingPods), describeCharge(w), describeQuotaUse(w, project, quotas), project.Spec.Department)
}

// describeQuotaUse is how much of the quota is taken, and whose it is.
func describeQuotaUse(w *Workload, project *v1alpha1.Project, quotas []corev1.ResourceQuota) string {
	name := corev1.DefaultResourceRequestsPrefix + w.Resource
	for i := range quotas {
		quota := &quotas[i]
		hard, ok := quota.Status.Hard[name]
		if quota.Name != w.Quota || !ok {
			continue
		}
		used := quota.Status.Used[name]
		has, may := workload.Milli(used.Value()).Describe(), workload.Milli(hard.Value()).Describe()
		if len(quota.Spec.Scopes) > 0 || quota.Spec.ScopeSelector != nil {
			return fmt.Sprintf("project %s holds %s with pods that cannot be preempted, for which %s may be used at once", project.Name, has, may)
		}
		return fmt.Sprintf("project %s holds %s and may hold %s at once", project.Name, has, may)
	}
	return fmt.Sprintf("the quota %s of project %s is used up", w.Quota, project.Name)
}

// summarizeRejected is the message of the condition. It has nothing that changes while
// everybody waits on.
func summarizeRejected(waiting []Workload) string {
	var total workload.Milli
	for i := range waiting {
		total += waiting[i].PendingCharge()
	}
	var names []string
	for i := range waiting[:min(maxNamedWorkloads, len(waiting))] {
		w := &waiting[i]
		names = append(names, fmt.Sprintf("%s %s (%s of %s, since %s)",
			w.Root.Kind, w.Root.Name, pluralize(w.MissingPods, "pod", "pods"), describeCharge(w), w.Since.UTC().Format(time.RFC3339)))
	}
	list := strings.Join(names, ", ")
	if more := len(waiting) - maxNamedWorkloads; more > 0 {
		list += fmt.Sprintf(" and %d more", more)
	}
	return fmt.Sprintf("%s for GPU quota, %s in all: %s; their pods are made as room appears, the oldest first",
		pluralize(int32(len(waiting)), "workload waits", "workloads wait"), total.Describe(), list)
}

// describeCharge is what a pod asks for, and where.
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

// PendingReason is why something waits in a queue.
type PendingReason struct {
	// Summary has nothing that changes while the reason is the same.
	Summary string
	// Details has the figures of the moment.
	Details string
	// Transient is whether it says nothing that would last until the next try.
	Transient bool
}

// What Kueue's scheduler says of a flavor, which is a node pool; of a flavor that
// cannot be had at all, and of what goes on meanwhile.
var (
	insufficientUnusedPattern   = regexp.MustCompile(`insufficient unused quota for (\S+) in flavor (\S+), (\S+) more needed`)
	insufficientCapacityPattern = regexp.MustCompile(`insufficient quota for (\S+) in flavor (\S+), previously considered podsets requests \((\S*)\) \+ current podset request \((\S*)\) > maximum capacity \((\S*)\)`)
	affinityMismatchPattern     = regexp.MustCompile(`flavor (\S+) doesn't match node affinity`)
	pendingPreemptionPattern    = regexp.MustCompile(`Pending the preemption of (\d{1,9}) workload\(s\)`)
	queueFaultPattern           = regexp.MustCompile(`^(LocalQueue|ClusterQueue) (\S*) (doesn't exist|not found|is inactive|is stopped|is terminating or missing)$`)
)

// maxQuotedMessage is how much of somebody else's message is repeated, and maxBrief and
// maxFull how much is said of a reason, in characters.
const maxQuotedMessage, maxReasonSummary, maxReasonDetails = 300, 200, 800

// ExplainQueued puts into words what Kueue says of a workload that it does not let in:
// the message of the condition QuotaReserved.
func ExplainQueued(message string) PendingReason {
	var brief, full []string
	passing := false
	say := func(short, long string) {
		if !slices.Contains(brief, short) {
			brief, full = append(brief, short), append(full, long)
		}
	}
	for _, m := range insufficientUnusedPattern.FindAllStringSubmatch(message, maxNamedWorkloads) {
		short := "no room in node pool " + m[2]
		say(short, fmt.Sprintf("%s, where %s more would be needed of what the project may have and others do not use", short, formatAmount(m[1], m[3])))
	}
	for _, m := range insufficientCapacityPattern.FindAllStringSubmatch(message, maxNamedWorkloads) {
		short := fmt.Sprintf("more of node pool %s than can be had there", m[2])
		say(short, fmt.Sprintf("%s: %s, and the project can have %s at most", short, formatSum(m[1], m[3], m[4]), formatAmount(m[1], m[5])))
	}
	for _, m := range affinityMismatchPattern.FindAllStringSubmatch(message, maxNamedWorkloads) {
		short := fmt.Sprintf("it does not select the nodes of node pool %s", m[1])
		say(short, short)
	}
	switch m := queueFaultPattern.FindStringSubmatch(message); {
	case m != nil:
		short := fmt.Sprintf("Kueue's %s %s %s", m[1], m[2], m[3])
		say(short, short+"; tell an administrator")
	case strings.Contains(message, "no longer fits after processing another workload"),
		strings.Contains(message, "overlapping preemption targets with another workload"):
		say("others were quicker", "others were quicker; it is tried again at once")
		passing = len(brief) == 1
	case strings.Contains(message, "namespace doesn't match ClusterQueue selector"):
		say("the queue is not for this namespace", "the queue is not for this namespace; tell an administrator")
	case len(brief) > 0:
	case message == "":
		say("it was not its turn yet", "it was not its turn yet")
		passing = true
	default:
		say("Kueue says why", "Kueue says: "+quoteMessage(message))
	}
	why := PendingReason{singleLine(strings.Join(brief, ", "), maxReasonSummary), singleLine(strings.Join(full, "; "), maxReasonDetails), passing}
	if m := pendingPreemptionPattern.FindStringSubmatch(message); m != nil {
		why.Details += fmt.Sprintf("; %s of others are ended to make room for it", pluralizeText(m[1], "workload", "workloads"))
	}
	return why
}

// What Kueue says of who was preferred to a workload, and why.
var preemptorPattern = regexp.MustCompile(`preemptor path: (?:/[^/;\s]+)*/([^/;\s]+)(?:;|$)`)

// ExplainEviction puts into words why Kueue ended what it had let in: the reason of the
// condition Preempted and its message, or that of the condition Evicted where it
// was not preempted.
func ExplainEviction(reason, message string) string {
	by := "another project"
	if m := preemptorPattern.FindStringSubmatch(message); m != nil && len(validation.IsDNS1123Subdomain(m[1])) == 0 {
		by = "project " + m[1]
	}
	switch reason {
	case "InClusterQueue":
		return "for a workload of the same project that comes first"
	case "InCohortReclamation":
		return fmt.Sprintf("for %s, to which the GPUs are guaranteed; it ran on what was idle", by)
	case "InCohortFairSharing":
		return fmt.Sprintf("for %s, which had less of its fair share of what is idle", by)
	case "InCohortReclaimWhileBorrowing":
		return fmt.Sprintf("for %s, which comes first; it ran on what was idle", by)
	default:
		return "by Kueue, which says: " + quoteMessage(message)
	}
}

// formatAmount is a number of a resource in words: 2.5 GPUs of the currency, 3 cpu.
func formatAmount(name, number string) string {
	if q, err := resource.ParseQuantity(number); err == nil && isGPUQuotaResource(name) && q.Sign() >= 0 {
		return workload.Milli(q.Value()).Describe()
	}
	return quoteMessage(number + " " + name)
}

// formatSum is amount of two numbers.
func formatSum(name, a, b string) string {
	first, err := resource.ParseQuantity(a)
	second, err2 := resource.ParseQuantity(b)
	if err != nil || err2 != nil {
		return formatAmount(name, b)
	}
	first.Add(second)
	return formatAmount(name, first.String())
}

// quoteMessage is a message of somebody else's as part of a sentence.
func quoteMessage(message string) string { return singleLine(message, maxQuotedMessage) }

// singleLine is a text that is printable, on one line, and of at most so many characters.
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
