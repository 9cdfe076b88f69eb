// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package replica

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/engine"
)

// Counter counts what the policies of a process do. The zero value is ready, and safe for concurrent use.
type Counter struct {
	mu     sync.Mutex
	counts map[engine.Version]*Counts
}

// Counts are those of a version of a policy.
type Counts struct {
	engine.Version
	// Violations are the objects that it refused, or would have refused, in the last week.
	Violations byProject
	// TimedOut are its evaluations of the last hour that took longer than a policy may.
	TimedOut byProject
	// Examples are the latest violations, the latest first.
	Examples []v1alpha1.PolicyExample
}

// Add counts a violation of a policy, with the object as an example.
func (c *Counter) Add(version engine.Version, example v1alpha1.PolicyExample) {
	c.mu.Lock()
	defer c.mu.Unlock()
	counts := c.of(version)
	counts.Violations.add(example.Project, week, policytime.MachineNow())
	counts.Examples = addExample(counts.Examples, cleanExample(example))
}

// AddExample adds an object that a policy in DryRun would only have changed.
func (c *Counter) AddExample(version engine.Version, example v1alpha1.PolicyExample) {
	c.mu.Lock()
	defer c.mu.Unlock()
	counts := c.of(version)
	counts.Examples = addExample(counts.Examples, cleanExample(example))
}

// AddTimeOut counts an evaluation for a project that took longer than a policy may.
func (c *Counter) AddTimeOut(version engine.Version, project string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.of(version).TimedOut.add(project, hour, policytime.MachineNow())
}

func (c *Counter) of(version engine.Version) *Counts {
	counts := c.counts[version]
	if counts == nil {
		if c.counts == nil {
			c.counts = map[engine.Version]*Counts{}
		}
		counts = &Counts{Version: version, Violations: byProject{}, TimedOut: byProject{}}
		c.counts[version] = counts
	}
	return counts
}

// span is the time for which something counts, in slots.
type span struct {
	slot  time.Duration
	slots int64
}

var (
	week = span{24 * time.Hour, 7}
	hour = span{5 * time.Minute, 12}
)

func (s span) length() time.Duration { return s.slot * time.Duration(s.slots) }

// number returns the number of the slot of a time, since 1970.
func (s span) number(at time.Time) int64 { return at.UnixNano() / int64(s.slot) }

// window has the counts of the slots of a span.
type window struct {
	// Latest is the number of the latest slot with a count. Slot n is in Slots[n % len(Slots)].
	Latest int64
	Slots  []int64
}

// sum returns the count of the slots that still count at a time.
func (w *window) sum(s span, now time.Time) (sum int64) {
	oldest := max(s.number(now)-s.slots+1, 0)
	for i := range int64(len(w.Slots)) {
		if slot := w.Latest - i; slot >= oldest {
			sum += w.Slots[slot%int64(len(w.Slots))]
		}
	}
	return sum
}

// byProject has the windows of projects.
type byProject map[string]*window

// maxProjects is the number of projects that a Counter tells apart for a policy. Those beyond it have the name "".
const maxProjects = 64

func (p byProject) add(project string, s span, now time.Time) {
	if p[project] == nil && len(p) >= maxProjects {
		project = ""
	}
	w, slot := p[project], s.number(now)
	if w == nil {
		w = &window{slot, make([]int64, s.slots)}
		p[project] = w
	}
	for w.Latest = max(w.Latest, slot-s.slots); w.Latest < slot; {
		w.Latest++
		w.Slots[w.Latest%s.slots] = 0
	}
	w.Slots[w.Latest%s.slots]++
}

// addTo adds the counts that still count at a time.
func (p byProject) addTo(sums map[string]int64, s span, now time.Time) {
	for project, w := range p {
		if w != nil {
			sums[project] += w.sum(s, now)
		}
	}
}

// addExample returns the examples with another one in front. It replaces the one of the same object. A
// project with many violations displaces its own examples first.
func addExample(examples []v1alpha1.PolicyExample, added v1alpha1.PolicyExample) []v1alpha1.PolicyExample {
	kept := []v1alpha1.PolicyExample{added}
	perProject := map[string]int{added.Project: 1}
	for _, example := range examples {
		if example.Project != added.Project || example.Kind != added.Kind || example.Namespace != added.Namespace || example.Name != added.Name {
			kept = append(kept, example)
			perProject[example.Project]++
		}
	}
	if len(kept) <= maxExamples {
		return kept
	}
	largest := slices.Max(slices.Collect(maps.Values(perProject)))
	for i, example := range slices.Backward(kept) {
		if perProject[example.Project] == largest {
			return slices.Delete(kept, i, i+1)
		}
	}
	return kept
}

// cleanExample returns an example whose texts are printable, and as short as those of v1alpha1.PolicyExample.
func cleanExample(e v1alpha1.PolicyExample) v1alpha1.PolicyExample {
	e.Time = metav1.NewTime(e.Time.UTC().Truncate(time.Second))
	e.Kind, e.Name = shortText(e.Kind, 63), shortText(e.Name, 253)
	e.User, e.Message = shortText(e.User, 128), shortText(e.Message, 256)
	changes := e.Changes[:min(len(e.Changes), 10)]
	e.Changes = nil
	for _, path := range changes {
		e.Changes = append(e.Changes, shortText(path, 128))
	}
	return e
}

func shortText(text string, most int) string {
	return v1alpha1.TruncateText(strings.Map(func(r rune) rune {
		if !unicode.IsGraphic(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "\uFFFD")), most)
}
