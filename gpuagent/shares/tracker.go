// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package shares

import (
	"cmp"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"sluice.dev/api/v1alpha1"
)

const (
	// confirmation is the time without a gap after which a violation is a finding.
	confirmation = 60 * time.Second
	// defaultMaxGap is the longest time between two samples of one violation, unless the agent samples less
	// often.
	defaultMaxGap = 10 * time.Second
	// maxRestart is the longest time for which the findings of a former agent count. The first sample has to
	// confirm them.
	maxRestart = 3 * time.Minute
)

// Tracker evaluates samples one after another. It is not safe for concurrent use.
type Tracker struct {
	// MaxGap is the longest time between two samples of one violation. Default: 10 s.
	MaxGap time.Duration

	violated map[key]*violation
	// restoredAt is the time of the last sample of a former agent while the violations are its own; else zero.
	restoredAt time.Time
}

// violation is a violation that lasts.
type violation struct {
	// since is when it began by the clock, begun and last are its first and last sample by the elapsed time.
	since       time.Time
	begun, last time.Duration
	// found reports that it is a finding.
	found  bool
	excess int64
}

// Restore continues from the findings that a former agent published at a time. If the clock was set back since a
// finding, it lasts since that sample.
func (t *Tracker) Restore(findings []v1alpha1.Finding, sampledAt time.Time) {
	t.violated, t.restoredAt = map[key]*violation{}, sampledAt
	for i := range findings {
		f := &findings[i]
		if f.Device == "" {
			continue
		}
		since := f.Since.Time
		if since.After(sampledAt) {
			since = sampledAt
		}
		t.violated[key{f.PodUID, f.Device, f.Reason}] = &violation{since: since, found: true, excess: f.ExcessMiB}
	}
}

// Add evaluates the next sample and returns the findings, the worst first. A violation becomes a finding
// after a minute in which each sample showed it. It ends with the first sample that shows that it is over.
// A sample in which it is unknown ends it unless it is a finding already: a finding outlasts what is
// unknown for the longest gap. Only the elapsed time counts, so that it makes no difference when the clock is set.
// Whether the findings of a former agent still count depends on the clock: not if it was set forward meanwhile.
func (t *Tracker) Add(s Sample) []v1alpha1.Finding {
	longest := cmp.Or(t.MaxGap, defaultMaxGap)
	restored := !t.restoredAt.IsZero()
	if restored && s.At.Sub(t.restoredAt) > max(longest, maxRestart) {
		t.violated = nil
	}
	next := map[key]*violation{}
	for i := range s.Devices {
		d := &s.Devices[i]
		excess, unknown := d.violations(func(pod types.UID) bool {
			return t.violated[key{pod, d.UUID, v1alpha1.FindingMemoryConflict}] != nil
		})
		for k, amount := range excess {
			v := t.violated[k]
			if v == nil || !restored && s.Elapsed-v.last > longest {
				v = &violation{since: s.At, begun: s.Elapsed}
			}
			v.last, v.excess = s.Elapsed, amount
			v.found = v.found || s.Elapsed-v.begun >= confirmation
			next[k] = v
		}
		if restored {
			continue
		}
		for _, k := range unknown {
			if v := t.violated[k]; v != nil && v.found && s.Elapsed-v.last <= longest {
				next[k] = v
			}
		}
	}
	t.violated, t.restoredAt = next, time.Time{}
	return t.findings()
}

// findings returns the findings, the worst first.
func (t *Tracker) findings() (findings []v1alpha1.Finding) {
	for k, v := range t.violated {
		if v.found {
			findings = append(findings, v1alpha1.Finding{
				PodUID: k.pod, Reason: k.reason, Since: metav1.NewTime(v.since.Truncate(time.Second)), Device: k.device, ExcessMiB: max(0, v.excess),
			})
		}
	}
	slices.SortFunc(findings, compareFindings)
	return findings
}

// compareFindings orders the worst first: the largest excess, then the oldest.
func compareFindings(a, b v1alpha1.Finding) int {
	return cmp.Or(cmp.Compare(b.ExcessMiB, a.ExcessMiB), a.Since.Compare(b.Since.Time), strings.Compare(string(a.PodUID), string(b.PodUID)),
		strings.Compare(a.Device, b.Device), strings.Compare(string(a.Reason), string(b.Reason)))
}
