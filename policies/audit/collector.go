// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"cmp"
	"hash/maphash"
	"slices"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/decision"
)

// BeforePolicies is the policy of findings that no single policy has: sizes, GPU requests, undecodable objects, and conflicts.
const BeforePolicies = "admission"

// Entry is the finding of one policy about one object.
type Entry struct {
	Policy      string               `json:"policy"`
	Enforcement v1alpha1.Enforcement `json:"enforcement"`
	Result      decision.AuditResult `json:"result"`
	Project     string               `json:"project"`
	Object      `json:",inline"`
	// Pods is the number of the object's pods that have the finding too; 0 if only its template, or the object itself, has it.
	Pods    int    `json:"pods,omitempty"`
	Message string `json:"message"`
	// More is the number of the policy's other findings about the object.
	More int    `json:"more,omitempty"`
	Fix  string `json:"fix,omitempty"`
	// Changes are the paths that the policy would change.
	Changes []string `json:"changes,omitempty"`
}

// Counts are numbers of entries by result.
type Counts struct {
	Denied  int `json:"denied"`
	Changed int `json:"changed"`
	Warned  int `json:"warned"`
	Failed  int `json:"failed"`
	// Enforced is the number of violations of policies in Deny.
	Enforced int `json:"enforced"`
}

// Violations returns the number of objects that a policy would not admit as they are.
func (c Counts) Violations() int { return c.Denied + c.Changed }

// Add counts a finding.
func (c *Counts) Add(result decision.AuditResult, enforcement v1alpha1.Enforcement) {
	if result.IsViolation() && enforcement == v1alpha1.EnforcementDeny {
		c.Enforced++
	}
	switch result {
	case decision.AuditDenied:
		c.Denied++
	case decision.AuditChanged:
		c.Changed++
	case decision.AuditWarned:
		c.Warned++
	case decision.AuditFailed:
		c.Failed++
	}
}

// PolicyCounts are the numbers of a policy.
type PolicyCounts struct {
	Counts
	Enforcement v1alpha1.Enforcement
	// ByProject are the violations by project.
	ByProject map[string]int
}

// Limits limit the entries of a report. What exceeds them is only counted.
type Limits struct {
	// Namespace is the largest number of entries of a namespace, and Total that of all.
	Namespace, Total int
}

// DefaultLimits keep a report in the memory of lifecycle, and that of a namespace in an object of the API server.
var DefaultLimits = Limits{Namespace: 500, Total: 20_000}

// maxDistinct limits the findings that are told apart. The pods beyond are each counted as an object.
const maxDistinct = 1_000_000

// Report has the findings of an audit.
type Report struct {
	// Entries are sorted by namespace, policy, kind, name and result.
	Entries []Entry
	// Namespaces and Policies count all findings, also those without an entry.
	Namespaces map[string]Counts
	Policies   map[string]*PolicyCounts
	// Evaluated is the number of objects that were evaluated, and Unevaluated of those that could not be.
	Evaluated, Unevaluated int
	// MissingRights are the resources that could not be listed.
	MissingRights []string
}

// Total returns the numbers of all namespaces.
func (r *Report) Total() Counts {
	var total Counts
	for _, counts := range r.Namespaces {
		total.Denied += counts.Denied
		total.Changed += counts.Changed
		total.Warned += counts.Warned
		total.Failed += counts.Failed
		total.Enforced += counts.Enforced
	}
	return total
}

// Collector collects findings. The entries of a namespace that it keeps are the first ones. It is not safe for concurrent use.
type Collector struct {
	limits Limits
	seed   maphash.Seed
	// seen has the entry of each finding; nil if it has none.
	seen        map[uint64]*Entry
	entries     []*Entry
	byNamespace map[string]int
	report      Report
}

// NewCollector returns an empty collector.
func NewCollector(limits Limits) *Collector {
	return &Collector{
		limits: limits, seed: maphash.MakeSeed(), seen: make(map[uint64]*Entry), byNamespace: make(map[string]int),
		report: Report{Namespaces: make(map[string]Counts), Policies: make(map[string]*PolicyCounts)},
	}
}

// entryIdentity identifies a finding: objects can be seen several times, as the root of pods.
type entryIdentity struct {
	namespace, apiVersion, kind, name, policy string
	result                                    decision.AuditResult
}

// Add adds the findings about an object. root is the object that they name, and pod reports that they are about one of its pods.
func (c *Collector) Add(root Object, project string, pod bool, findings []decision.AuditFinding) {
	for i := range findings {
		finding := &findings[i]
		policy := cmp.Or(finding.Policy, BeforePolicies)
		key := maphash.Comparable(c.seed, entryIdentity{root.Namespace, root.APIVersion, root.Kind, root.Name, policy, finding.Result})
		entry, known := c.seen[key]
		if !known {
			entry = c.create(root, project, policy, finding)
			if len(c.seen) < maxDistinct {
				c.seen[key] = entry
			}
		}
		if entry != nil && pod && root.Kind != podKind.Kind {
			entry.Pods++
		}
	}
}

// create counts a new finding, and returns its entry; nil if there are too many.
func (c *Collector) create(root Object, project, policy string, finding *decision.AuditFinding) *Entry {
	counts := c.report.Namespaces[root.Namespace]
	counts.Add(finding.Result, finding.Enforcement)
	c.report.Namespaces[root.Namespace] = counts
	ofPolicy := c.report.Policies[policy]
	if ofPolicy == nil {
		ofPolicy = &PolicyCounts{Enforcement: finding.Enforcement, ByProject: make(map[string]int)}
		c.report.Policies[policy] = ofPolicy
	}
	ofPolicy.Add(finding.Result, finding.Enforcement)
	if finding.Result.IsViolation() {
		ofPolicy.ByProject[project]++
	}
	if c.byNamespace[root.Namespace] >= c.limits.Namespace || len(c.entries) >= c.limits.Total {
		return nil
	}
	c.byNamespace[root.Namespace]++
	entry := &Entry{
		Policy: policy, Enforcement: finding.Enforcement, Result: finding.Result, Project: project, Object: root,
		Message: finding.Message, More: finding.More, Fix: finding.Fix, Changes: finding.Changes,
	}
	c.entries = append(c.entries, entry)
	return entry
}

// Report returns the findings. The collector must not be used afterwards.
func (c *Collector) Report() *Report {
	report := &c.report
	for _, entry := range c.entries {
		report.Entries = append(report.Entries, *entry)
	}
	slices.SortFunc(report.Entries, func(a, b Entry) int {
		return cmp.Or(
			cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Policy, b.Policy), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name),
			cmp.Compare(a.APIVersion, b.APIVersion), cmp.Compare(a.Result, b.Result),
		)
	})
	slices.Sort(report.MissingRights)
	return report
}
