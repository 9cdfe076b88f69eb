// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package replica

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/engine"
)

// maxCountedProjects limits the projects that a Counter distinguishes for a policy. Violations of
// further ones are in the total only.
const maxCountedProjects = 1024

// Counter counts the violations of a process. The zero value is ready, and safe for concurrent use.
type Counter struct {
	mu     sync.Mutex
	counts map[engine.Version]*count
}

type count struct {
	total    int64
	projects map[string]int64
	examples []v1alpha1.PolicyExample
	// timedOut are the evaluations that took too long, by project.
	timedOut map[string]*lastHour
}

// Add counts a violation of a policy, with the object as an example.
func (c *Counter) Add(version engine.Version, example v1alpha1.PolicyExample) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.count(version)
	n.total++
	if _, known := n.projects[example.Project]; known || len(n.projects) < maxCountedProjects {
		n.projects[example.Project]++
	}
	n.examples = addExample(n.examples, cleanExample(example))
}

// AddTimeOut counts an evaluation that took longer than a policy may, for an hour.
func (c *Counter) AddTimeOut(version engine.Version, project string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.count(version)
	if n.timedOut[project] == nil {
		if len(n.timedOut) == maxCountedProjects {
			return
		}
		n.timedOut[project] = &lastHour{}
	}
	n.timedOut[project].add(policytime.MachineNow())
}

// AddExample adds an object that a policy in DryRun would only have changed.
func (c *Counter) AddExample(version engine.Version, example v1alpha1.PolicyExample) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.count(version)
	n.examples = addExample(n.examples, cleanExample(example))
}

func (c *Counter) count(version engine.Version) *count {
	n := c.counts[version]
	if n == nil {
		if c.counts == nil {
			c.counts = map[engine.Version]*count{}
		}
		n = &count{projects: map[string]int64{}, timedOut: map[string]*lastHour{}}
		c.counts[version] = n
	}
	return n
}

// Violations returns what was counted for these policies, by name. It forgets all others: they are no
// longer in force.
func (c *Counter) Violations(inForce []engine.Version) []Violations {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.counts, func(version engine.Version, _ *count) bool { return !slices.Contains(inForce, version) })
	var all []Violations
	now := policytime.MachineNow()
	for version, n := range c.counts {
		all = append(all, Violations{
			Version: Version(version), Total: n.total, Projects: TopProjects(n.projects, MaxProjects), Examples: slices.Clone(n.examples), TimedOut: n.timedOutSince(now),
		})
	}
	slices.SortFunc(all, func(a, b Violations) int { return cmp.Compare(a.Policy, b.Policy) })
	return all
}

// timedOutSince returns the evaluations of the last hour that took too long, the most first. It forgets older ones.
func (n *count) timedOutSince(now time.Time) []TimedOut {
	var list []TimedOut
	for project, hour := range n.timedOut {
		if sum := hour.sum(now); sum > 0 {
			list = append(list, TimedOut{project, sum})
		} else {
			delete(n.timedOut, project)
		}
	}
	slices.SortFunc(list, func(a, b TimedOut) int {
		return cmp.Or(cmp.Compare(b.Evaluations, a.Evaluations), cmp.Compare(a.Project, b.Project))
	})
	return list[:min(len(list), MaxProjects)]
}

// lastHour counts what happened in the last hour, in slots of five minutes.
type lastHour struct {
	slots [12]int64
	// latest is the number of the latest slot since 1970.
	latest int64
}

const slotLength = 5 * time.Minute

func (h *lastHour) add(now time.Time) {
	h.sum(now)
	h.slots[h.latest%int64(len(h.slots))]++
}

func (h *lastHour) sum(now time.Time) (sum int64) {
	slot := now.Unix() / int64(slotLength/time.Second)
	for h.latest = max(h.latest, slot-int64(len(h.slots))); h.latest < slot; {
		h.latest++
		h.slots[h.latest%int64(len(h.slots))] = 0
	}
	for _, n := range h.slots {
		sum += n
	}
	return sum
}

// Reset forgets everything.
func (c *Counter) Reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counts = nil
}

// TopProjects returns the projects with the most violations, the largest number first.
func TopProjects(violations map[string]int64, most int) []v1alpha1.ProjectViolations {
	var list []v1alpha1.ProjectViolations
	for project, n := range violations {
		list = append(list, v1alpha1.ProjectViolations{Project: project, Violations: n})
	}
	slices.SortFunc(list, func(a, b v1alpha1.ProjectViolations) int {
		return cmp.Or(cmp.Compare(b.Violations, a.Violations), cmp.Compare(a.Project, b.Project))
	})
	return list[:min(len(list), most)]
}

// MergeExamples returns the examples to keep, the latest first.
func MergeExamples(lists ...[]v1alpha1.PolicyExample) []v1alpha1.PolicyExample {
	all := slices.Concat(lists...)
	slices.SortStableFunc(all, compareExamples)
	var kept []v1alpha1.PolicyExample
	for _, example := range slices.Backward(all) {
		kept = addExample(kept, example)
	}
	return kept
}

// compareExamples orders examples by time, the latest first.
func compareExamples(a, b v1alpha1.PolicyExample) int {
	return cmp.Or(b.Time.Compare(a.Time.Time), cmp.Compare(a.Project, b.Project), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
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

// cleanExample returns an example whose texts are short and printable.
func cleanExample(e v1alpha1.PolicyExample) v1alpha1.PolicyExample {
	e.Time = seconds(e.Time.Time)
	e.Kind, e.Name = shortText(e.Kind, 63), shortText(e.Name, maxNameBytes)
	e.User, e.Message = shortText(e.User, maxUserBytes), shortText(e.Message, maxMessageBytes)
	changes := e.Changes[:min(len(e.Changes), maxChanges)]
	e.Changes = nil
	for _, path := range changes {
		e.Changes = append(e.Changes, shortText(path, maxChangeBytes))
	}
	return e
}
