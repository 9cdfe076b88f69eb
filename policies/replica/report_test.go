// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package replica

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/engine"
)

func newVersion(name string) engine.Version {
	return engine.Version{Policy: name, Generation: 3, Digest: strings.Repeat("ab", engine.VersionDigestBytes)}
}

func newExample(project, name string, second int) v1alpha1.PolicyExample {
	return v1alpha1.PolicyExample{
		Time:    metav1.NewTime(time.Date(2026, 11, 22, 12, 0, second, 0, time.UTC)),
		Project: project, Kind: "Pod", Namespace: project, Name: name, User: "anna", Message: "too <many> GPUs", Changes: []string{"metadata.labels[x]"},
	}
}

// report returns what a counter reports, decoded again.
func report(t *testing.T, c *Counter, inForce ...engine.Version) []Counts {
	t.Helper()
	text, err := c.Report(inForce)
	if err != nil {
		t.Fatal(err)
	}
	if len(text) > maxReportBytes {
		t.Fatalf("%d bytes", len(text))
	}
	if text == "" {
		return nil
	}
	counts, err := Decode(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{v1alpha1.ReplicaReportAnnotation: text}}})
	if err != nil {
		t.Fatal(err)
	}
	return counts
}

// Violations count for seven days, and evaluations that took too long for an hour, in the sum of all replicas, whenever each of them
// reported.
func TestCountsAreOfATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var a, b Counter
		version, former := newVersion("p"), newVersion("p")
		former.Generation--
		check := func(what string, violations, timedOut map[string]int64, reports ...[]Counts) {
			t.Helper()
			total := Sum(reports, version, time.Now())
			if diff := cmp.Diff([]map[string]int64{violations, timedOut}, []map[string]int64{total.Violations, total.TimedOut}); diff != "" {
				t.Errorf("%s (-want +got):\n%s", what, diff)
			}
		}
		a.Add(former, newExample("x", "a", 0))
		for range 3 {
			a.Add(version, newExample("x", "a", 0))
			a.AddTimeOut(version, "x")
		}
		b.Add(version, newExample("x", "b", 0))
		b.Add(version, newExample("y", "c", 0))
		ended := report(t, &a, version, former)
		check("at first", map[string]int64{"x": 4, "y": 1}, map[string]int64{"x": 3}, ended, report(t, &b, version))

		time.Sleep(30 * time.Minute)
		b.AddTimeOut(version, "y")
		check("after half an hour", map[string]int64{"x": 4, "y": 1}, map[string]int64{"x": 3, "y": 1}, ended, report(t, &b, version))
		time.Sleep(35 * time.Minute)
		check("after an hour", map[string]int64{"x": 4, "y": 1}, map[string]int64{"y": 1}, ended, report(t, &b, version))

		time.Sleep(4 * 24 * time.Hour)
		b.Add(version, newExample("y", "d", 0))
		check("after four days", map[string]int64{"x": 4, "y": 2}, map[string]int64{}, ended, report(t, &b, version))
		time.Sleep(4 * 24 * time.Hour)
		check("after eight days", map[string]int64{"y": 1}, map[string]int64{}, ended, report(t, &b, version))
		time.Sleep(1000 * 24 * time.Hour)
		b.Add(version, newExample("z", "e", 0))
		check("after years", map[string]int64{"z": 1}, map[string]int64{}, ended, report(t, &b, version))

		if rest := report(t, &a); rest != nil {
			t.Errorf("policies that are no longer in force: %+v", rest)
		}
	})
}

// A clock that steps back loses nothing. Guards invariant 11 of the design.
func TestCountsWhenTheClockStepsBack(t *testing.T) {
	p, now := byProject{}, time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
	p.add("x", hour, now)
	p.add("x", hour, now.Add(-30*time.Minute))
	if sum := p["x"].sum(hour, now); sum != 2 {
		t.Errorf("%d, want 2", sum)
	}
}

// A report fits in an annotation, for any number of policies and projects, and whatever the names of objects are. Guards invariant 10
// of the design.
func TestReportIsBounded(t *testing.T) {
	for _, policies := range []int{0, 1, 40, 2000} {
		var counter Counter
		var versions []engine.Version
		hostile := strings.Repeat("\x1b[2Jü\u202e\xff", 1000)
		for i := range policies {
			version := newVersion(fmt.Sprintf("policy-%05d", i))
			versions = append(versions, version)
			for p := range 100 {
				example := newExample(fmt.Sprintf("project-%d", p), "a", p)
				if i < 40 && p > 95 {
					example.Name, example.User, example.Message, example.Changes = hostile, hostile, hostile, slices.Repeat([]string{hostile}, 100)
				}
				counter.Add(version, example)
				counter.AddTimeOut(version, example.Project)
			}
		}
		got := report(t, &counter, versions...)
		t.Logf("%d policies: %d reported", policies, len(got))
		if len(got) == 0 && policies > 0 {
			t.Errorf("%d policies: nothing is reported", policies)
		}
		if policies > 0 {
			total := Sum([][]Counts{got, got}, versions[0], time.Now())
			var sum int64
			for _, n := range total.Violations {
				sum += n
			}
			if sum != 200 || len(total.Violations) != maxProjects+1 {
				t.Errorf("%d violations of %d projects, want those of all", sum, len(total.Violations))
			}
		}
	}
}

// What an administrator makes of a Lease by mistake is an error, or counts for nothing.
func FuzzDecode(f *testing.F) {
	for _, text := range []string{
		"", "{", "[]", "null", `[{"Policy": "p", "Violations": {"x": null}}]`, `[{"Policy": "p", "Violations": {"x": {"Latest": 20000}}}]`,
		`[{"Policy": "p", "TimedOut": {"x": {"Latest": -9223372036854775808, "Slots": [1]}}}]`,
		`[{"Policy": "p", "Violations": {"x": {"Latest": 9223372036854775807, "Slots": [1, 2, 3]}}}]`,
	} {
		f.Add(text)
	}
	f.Fuzz(func(_ *testing.T, text string) {
		counts, err := Decode(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{v1alpha1.ReplicaReportAnnotation: text}}})
		if err != nil {
			return
		}
		for i := range counts {
			Sum([][]Counts{counts}, counts[i].Version, time.Unix(1_800_000_000, 0))
		}
	})
}

func TestOutdatedLeases(t *testing.T) {
	now := time.Now()
	for age, want := range map[time.Duration]bool{0: false, 7 * 24 * time.Hour: false, 9 * 24 * time.Hour: true, -time.Hour: false} {
		lease := &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{RenewTime: &metav1.MicroTime{Time: now.Add(-age)}}}
		if got := IsOutdated(lease, now); got != want {
			t.Errorf("after %s: %t", age, got)
		}
	}
	if !IsOutdated(&coordinationv1.Lease{}, now) {
		t.Error("without a time: not outdated")
	}
}

func TestNewLeaseName(t *testing.T) {
	seen := map[string]bool{}
	for _, host := range []string{"", "sluice-webhook-7d9f8b6c5-x7f2q", "Node.Example.ORG", strings.Repeat("h", 300), "-", "ü"} {
		for range 2 {
			name := NewLeaseName(host)
			if wrong := validation.IsDNS1123Label(name); len(wrong) > 0 || !strings.HasPrefix(name, LeasePrefix) || seen[name] {
				t.Errorf("host %q: %q is %v", host, name, wrong)
			}
			seen[name] = true
		}
	}
}

// A project with many violations does not displace the examples of others, and neither does a replica.
func TestExamplesAreOfSeveralProjects(t *testing.T) {
	var counter, other Counter
	version := newVersion("a")
	counter.Add(version, newExample("b", "first", 0))
	counter.AddExample(version, newExample("c", "first", 1))
	for i := range 50 {
		counter.Add(version, newExample("a", fmt.Sprintf("pod-%d", i), 10+i))
		other.Add(version, newExample("a", "same", 11+i))
	}
	total := Sum([][]Counts{report(t, &counter, version), report(t, &other, version)}, version, time.Now())
	var names []string
	for _, e := range total.Examples {
		names = append(names, e.Project+"/"+e.Name)
	}
	if want := []string{"a/same", "a/pod-49", "a/pod-48", "c/first", "b/first"}; !slices.Equal(names, want) {
		t.Errorf("examples %v, want %v", names, want)
	}
}
