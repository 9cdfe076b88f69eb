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

	last     time.Time
	violated map[key]*violation
	// restored reports that the violations are those of a former agent.
	restored bool
}

// violation is a violation that lasts.
type violation struct {
	since, last time.Time
	// found reports that it is a finding.
	found  bool
	excess int64
}

// Restore continues from the findings that a former agent published at a time.
func (t *Tracker) Restore(findings []v1alpha1.Finding, sampledAt time.Time) {
	t.violated, t.restored, t.last = map[key]*violation{}, true, sampledAt
	for i := range findings {
		f := &findings[i]
		if f.Device != "" && !f.Since.After(sampledAt) {
			t.violated[key{f.PodUID, f.Device, f.Reason}] = &violation{since: f.Since.Time, last: sampledAt, found: true, excess: f.ExcessMiB}
		}
	}
}

// Add evaluates the next sample and returns the findings, the worst first. A violation becomes a finding
// after a minute in which each sample showed it. It ends with the first sample that shows that it is over.
// A sample in which it is unknown ends it unless it is a finding already: a finding outlasts what is
// unknown for the longest gap.
func (t *Tracker) Add(s Sample) []v1alpha1.Finding {
	longest := cmp.Or(t.MaxGap, defaultMaxGap)
	if t.restored {
		longest = max(longest, maxRestart)
	}
	if s.At.Before(t.last) { // The clock was set back.
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
			if v == nil || s.At.Sub(v.last) > longest {
				v = &violation{since: s.At}
			}
			v.last, v.excess = s.At, amount
			v.found = v.found || s.At.Sub(v.since) >= confirmation
			next[k] = v
		}
		if t.restored {
			continue
		}
		for _, k := range unknown {
			if v := t.violated[k]; v != nil && v.found && s.At.Sub(v.last) <= longest {
				next[k] = v
			}
		}
	}
	t.violated, t.last, t.restored = next, s.At, false
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
