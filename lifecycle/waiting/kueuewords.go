// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package waiting

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"

	"sluice.dev/api/workload"
)

// Why is why something waits in a queue.
type Why struct {
	// Brief has nothing that changes while the reason is the same.
	Brief string
	// Full has the figures of the moment.
	Full string
	// Passing is whether it says nothing that would last until the next try.
	Passing bool
}

// What Kueue's scheduler says of a flavor, which is a node pool; of a flavor that
// cannot be had at all, and of what goes on meanwhile.
var (
	lacksNow   = regexp.MustCompile(`insufficient unused quota for (\S+) in flavor (\S+), (\S+) more needed`)
	lacksEver  = regexp.MustCompile(`insufficient quota for (\S+) in flavor (\S+), previously considered podsets requests \((\S*)\) \+ current podset request \((\S*)\) > maximum capacity \((\S*)\)`)
	elsewhere  = regexp.MustCompile(`flavor (\S+) doesn't match node affinity`)
	preempting = regexp.MustCompile(`Pending the preemption of (\d{1,9}) workload\(s\)`)
	queueFault = regexp.MustCompile(`^(LocalQueue|ClusterQueue) (\S*) (doesn't exist|not found|is inactive|is stopped|is terminating or missing)$`)
)

// maxSaid is how much of somebody else's message is repeated, and maxBrief and
// maxFull how much is said of a reason, in characters.
const maxSaid, maxBrief, maxFull = 300, 200, 800

// WhyQueued puts into words what Kueue says of a workload that it does not let in:
// the message of the condition QuotaReserved.
func WhyQueued(message string) Why {
	var brief, full []string
	passing := false
	say := func(short, long string) {
		if !slices.Contains(brief, short) {
			brief, full = append(brief, short), append(full, long)
		}
	}
	for _, m := range lacksNow.FindAllStringSubmatch(message, maxNamed) {
		short := "no room in node pool " + m[2]
		say(short, fmt.Sprintf("%s, where %s more would be needed of what the project may have and others do not use", short, amount(m[1], m[3])))
	}
	for _, m := range lacksEver.FindAllStringSubmatch(message, maxNamed) {
		short := fmt.Sprintf("more of node pool %s than can be had there", m[2])
		say(short, fmt.Sprintf("%s: %s, and the project can have %s at most", short, sum(m[1], m[3], m[4]), amount(m[1], m[5])))
	}
	for _, m := range elsewhere.FindAllStringSubmatch(message, maxNamed) {
		short := fmt.Sprintf("it does not select the nodes of node pool %s", m[1])
		say(short, short)
	}
	switch m := queueFault.FindStringSubmatch(message); {
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
		say("Kueue says why", "Kueue says: "+said(message))
	}
	why := Why{line(strings.Join(brief, ", "), maxBrief), line(strings.Join(full, "; "), maxFull), passing}
	if m := preempting.FindStringSubmatch(message); m != nil {
		why.Full += fmt.Sprintf("; %s of others are ended to make room for it", countOf(m[1], "workload", "workloads"))
	}
	return why
}

// What Kueue says of who was preferred to a workload, and why.
var preferred = regexp.MustCompile(`preemptor path: (?:/[^/;\s]+)*/([^/;\s]+)(?:;|$)`)

// WhyEvicted puts into words why Kueue ended what it had let in: the reason of the
// condition Preempted and its message, or that of the condition Evicted where it
// was not preempted.
func WhyEvicted(reason, message string) string {
	by := "another project"
	if m := preferred.FindStringSubmatch(message); m != nil && len(validation.IsDNS1123Subdomain(m[1])) == 0 {
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
		return "by Kueue, which says: " + said(message)
	}
}

// amount is a number of a resource in words: 2.5 GPUs of the currency, 3 cpu.
func amount(name, number string) string {
	if q, err := resource.ParseQuantity(number); err == nil && isCurrency(name) && q.Sign() >= 0 {
		return workload.Milli(q.Value()).InWords()
	}
	return said(number + " " + name)
}

// sum is amount of two numbers.
func sum(name, a, b string) string {
	first, err := resource.ParseQuantity(a)
	second, err2 := resource.ParseQuantity(b)
	if err != nil || err2 != nil {
		return amount(name, b)
	}
	first.Add(second)
	return amount(name, first.String())
}

// said is a message of somebody else's as part of a sentence.
func said(message string) string { return line(message, maxSaid) }

// line is a text that is printable, on one line, and of at most so many characters.
func line(text string, most int) string {
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

func countOf(number, one, many string) string {
	if number == "1" {
		return "1 " + one
	}
	return number + " " + many
}
