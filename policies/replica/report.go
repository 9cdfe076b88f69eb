// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package replica counts what the policies of the webhook refuse, and which evaluations take too long.
//
// Each replica of the webhook writes its counts into a Lease of its own in Sluice's namespace, once a minute and only if they
// changed, and lifecycle adds up those of all Leases. Counts are of the last seven days, or of the last hour, and say of which day
// or minutes they are. So a Lease that nobody writes any more counts for less and less, and is deleted when it counts for nothing.
package replica

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/engine"
)

// LeasePrefix starts the names of the Leases.
const LeasePrefix = "sluice-webhook-"

// Labels returns the labels of every Lease.
func Labels() labels.Set {
	return labels.Set{v1alpha1.LabelManagedBy: v1alpha1.ManagedBySluice, "app.kubernetes.io/component": "webhook"}
}

// CacheOptions returns the kind of the Leases, and limits a cache to those of replicas.
func CacheOptions() (client.Object, cache.ByObject) {
	return &coordinationv1.Lease{}, cache.ByObject{Namespaces: map[string]cache.Config{
		v1alpha1.SystemNamespace: {LabelSelector: Labels().AsSelector()},
	}}
}

// NewLeaseName returns the name for the Lease of a process on a host, which no process before had: it would overwrite what that
// counted.
func NewLeaseName(host string) string {
	const suffixBytes = 5
	host = strings.TrimPrefix(strings.ToLower(host), LeasePrefix)
	clean := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '-' {
			return r
		}
		return '-'
	}, host)
	longest := validation.DNS1123LabelMaxLength - len(LeasePrefix) - 2*suffixBytes - 1
	clean = strings.Trim(clean[:min(len(clean), longest)], "-")
	suffix := make([]byte, suffixBytes)
	_, _ = rand.Read(suffix) // never fails
	return LeasePrefix + strings.TrimPrefix(clean+"-", "-") + hex.EncodeToString(suffix)
}

const (
	// maxReportBytes is the length of a report: half of what the annotations of an object may have in all.
	maxReportBytes = 128 << 10
	// maxExamples is the number of examples of a policy.
	maxExamples = 5
)

// Report returns the counts of the policies in force, as Decode reads them, and "" if there are none. If they are too long it leaves
// out the examples, and then policies. It forgets those that are no longer in force.
func (c *Counter) Report(inForce []engine.Version) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.counts, func(version engine.Version, _ *Counts) bool { return !slices.Contains(inForce, version) })
	var list []Counts
	for _, counts := range c.counts {
		list = append(list, *counts)
	}
	slices.SortFunc(list, func(a, b Counts) int { return cmp.Compare(a.Policy, b.Policy) })
	for most := 2 * len(list); most > 0; most /= 2 { // the first time with examples
		list = list[:min(len(list), most)]
		text, err := json.Marshal(list)
		if err != nil || len(text) <= maxReportBytes {
			return string(text), err
		}
		for i := range list {
			list[i].Examples = nil
		}
	}
	return "", nil
}

// Decode returns the report in a Lease.
func Decode(lease *coordinationv1.Lease) (counts []Counts, err error) {
	if err := json.Unmarshal([]byte(lease.Annotations[v1alpha1.ReplicaReportAnnotation]), &counts); err != nil {
		return nil, fmt.Errorf("lease %s: %w", lease.Name, err)
	}
	return counts, nil
}

// Total is what all replicas counted of a version of a policy, by project; "" are the projects that they do not tell apart.
type Total struct {
	Violations, TimedOut map[string]int64
	Examples             []v1alpha1.PolicyExample
}

// Sum adds up the reports of replicas at a time.
func Sum(reports [][]Counts, version engine.Version, now time.Time) Total {
	total := Total{map[string]int64{}, map[string]int64{}, nil}
	for _, report := range reports {
		for i := range report {
			if report[i].Version == version {
				report[i].Violations.addTo(total.Violations, week, now)
				report[i].TimedOut.addTo(total.TimedOut, hour, now)
				total.Examples = append(total.Examples, report[i].Examples...)
			}
		}
	}
	maps.DeleteFunc(total.Violations, func(_ string, n int64) bool { return n == 0 })
	maps.DeleteFunc(total.TimedOut, func(_ string, n int64) bool { return n == 0 })
	slices.SortStableFunc(total.Examples, compareExamples)
	kept := []v1alpha1.PolicyExample(nil)
	for _, example := range slices.Backward(total.Examples) {
		kept = addExample(kept, example)
	}
	total.Examples = kept
	return total
}

// compareExamples orders examples by time, the latest first.
func compareExamples(a, b v1alpha1.PolicyExample) int {
	return cmp.Or(b.Time.Compare(a.Time.Time), cmp.Compare(a.Project, b.Project), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
}

// IsOutdated reports whether nothing that a Lease reports counts any more.
func IsOutdated(lease *coordinationv1.Lease, now time.Time) bool {
	return lease.Spec.RenewTime == nil || now.Sub(lease.Spec.RenewTime.Time) > week.length()+24*time.Hour // clocks may differ
}
