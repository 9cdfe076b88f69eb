// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package replica defines what the replicas of the webhook report, and how lifecycle and the other
// replicas read it.
//
// Each replica renews a Lease of its own in Sluice's namespace. An annotation of the Lease has the
// [Report]: the policies in force there, the violations since its start, and the evaluations that took
// too long. The name of the Lease is new at each start of the process, so that a replica never overwrites
// what an earlier one counted. Lifecycle deletes the Leases of replicas that ended, after it has added
// their numbers to the status of the policies.
//
// An [Observer] measures the age of a report on its own clock, from when it saw the Lease change.
// Clocks that differ between nodes therefore do not end a replica.
package replica

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/engine"
)

const (
	// LeasePrefix starts the names of the Leases. An admission policy allows only the webhook to
	// write these, and the webhook to write only these.
	LeasePrefix = "sluice-webhook-"
	// RenewInterval is about the time between two renewals, in machine time.
	RenewInterval = 10 * time.Second
	// LeaseDuration is the time without renewal after which a replica counts as gone.
	LeaseDuration = 4 * RenewInterval
	// RetentionPeriod is the time without renewal after which lifecycle deletes a Lease.
	RetentionPeriod = 15 * time.Minute
)

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

// NewLeaseName returns a new name for the Lease of a process on a host.
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

// format is the version of the report's form. A reader ignores reports of other versions.
const format = 1

// Report is what one replica reports. Its lists are sorted and have no duplicates.
type Report struct {
	Format int `json:"format"`
	// Program is the version of the program.
	Program string `json:"program"`
	// PolicySet is the digest of all policies in force, also of those that Policies omits.
	PolicySet string `json:"policySet"`
	// Policies are the policies in force, by name.
	Policies []Version `json:"policies,omitempty"`
	// Missing are the policies that fail in this replica because data are missing, by name.
	Missing []Missing `json:"missing,omitempty"`
	// Violations are those since the start of the replica, by policy.
	Violations []Violations `json:"violations,omitempty"`
	// Omitted counts what did not fit.
	Omitted Omitted `json:"omitted,omitzero"`
	// Ended: the replica stopped, and this is its last report.
	Ended bool `json:"ended,omitempty"`
}

// Version is an [engine.Version].
type Version struct {
	Policy     string `json:"policy"`
	Generation int64  `json:"generation"`
	Digest     string `json:"digest"`
}

// Missing is the data that a policy cannot read.
type Missing struct {
	Policy string `json:"policy"`
	// Data says which data and why.
	Data string `json:"data"`
}

// MissingOf returns the policies of a set that miss data.
func MissingOf(set *engine.Set) []Missing {
	var all []Missing
	missing := set.MissingData()
	for _, policy := range slices.Sorted(maps.Keys(missing)) {
		all = append(all, Missing{policy, shortText(strings.Join(missing[policy], "; "), maxMessageBytes)})
	}
	return all
}

// Violations are the violations of a version of a policy.
type Violations struct {
	Version
	// Total includes the projects that Projects omits.
	Total    int64                        `json:"total"`
	Projects []v1alpha1.ProjectViolations `json:"projects,omitempty"`
	Examples []v1alpha1.PolicyExample     `json:"examples,omitempty"`
	// TimedOut are the evaluations of the last hour that took longer than a policy may.
	TimedOut []TimedOut `json:"timedOut,omitempty"`
}

// TimedOut is the number of evaluations for a project that took longer than a policy may.
type TimedOut struct {
	Project     string `json:"project"`
	Evaluations int64  `json:"evaluations"`
}

// Omitted has the numbers of what a report omits.
type Omitted struct {
	Policies   int `json:"policies,omitempty"`
	Violations int `json:"violations,omitempty"`
	Projects   int `json:"projects,omitempty"`
	Examples   int `json:"examples,omitempty"`
}

// NewReport returns a report about the policies in force in this process.
func NewReport(program string, versions []engine.Version, violations []Violations) Report {
	r := Report{Format: format, Program: program, PolicySet: Digest(versions), Violations: violations}
	for _, version := range versions {
		r.Policies = append(r.Policies, Version(version))
	}
	return r
}

// seconds returns a time as it is after encoding.
func seconds(t time.Time) metav1.Time { return metav1.NewTime(t.UTC().Truncate(time.Second)) }

// Digest returns the digest of a set of policies.
func Digest(versions []engine.Version) string {
	h := sha256.New()
	for _, v := range versions {
		_, _ = io.WriteString(h, fmt.Sprintf("%q %d %s\n", v.Policy, v.Generation, v.Digest))
	}
	return hex.EncodeToString(h.Sum(nil))
}
