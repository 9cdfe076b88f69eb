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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/engine"
)

var start = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

func newVersion(name string) engine.Version {
	return engine.Version{Policy: name, Generation: 3, Digest: strings.Repeat("ab", engine.VersionDigestBytes)}
}

func newExample(project, name string, second int) v1alpha1.PolicyExample {
	return v1alpha1.PolicyExample{
		Time: metav1.NewTime(start.Add(time.Duration(second) * time.Second)), Project: project, Kind: "Pod", Namespace: project, Name: name,
		User: "anna", Message: "too <many> GPUs", Changes: []string{"metadata.labels[x]"},
	}
}

// newReport returns a report with n policies, each with violations and evaluations that took too long.
func newReport(n int) Report {
	var (
		versions []engine.Version
		counter  Counter
	)
	for i := range n {
		version := newVersion(fmt.Sprintf("policy-%05d", i))
		versions = append(versions, version)
		for p := range 30 {
			counter.AddTimeOut(version, fmt.Sprintf("project-%d", p))
			for range 1 + (p+i)%3 {
				counter.Add(version, newExample(fmt.Sprintf("project-%d", p), "train-*", p))
			}
		}
	}
	return NewReport("v1.0.0", versions, counter.Violations(versions))
}

func TestReportIsDecodedAsItWasEncoded(t *testing.T) {
	report := newReport(3)
	report.Ended = true
	text, err := Encode(report)
	if err != nil {
		t.Fatal(err)
	}
	got, err := Decode(text)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(report, got); diff != "" {
		t.Errorf("(-encoded +decoded)\n%s", diff)
	}
}

// A report fits in an annotation for any number of policies; it counts what it omits, and is the same
// each time. Guards invariant 10 of the design.
func TestReportIsBounded(t *testing.T) {
	for _, policies := range []int{0, 10, 100, 2000} {
		report := newReport(policies)
		text, err := Encode(report)
		if err != nil {
			t.Fatal(err)
		}
		again, _ := Encode(report)
		got, err := Decode(text)
		if err != nil || again != text || len(text) > maxReportBytes {
			t.Fatalf("%d policies: %d bytes, equal %v, %v", policies, len(text), again == text, err)
		}
		if len(got.Policies)+got.Omitted.Policies != policies || len(got.Violations)+got.Omitted.Violations != policies {
			t.Errorf("%d policies: %d listed, omitted %+v", policies, len(got.Policies), got.Omitted)
		}
		t.Logf("%d policies: %d bytes, omitted %+v", policies, len(text), got.Omitted)
	}
	longest := newReport(0)
	name := strings.Repeat(strings.Repeat("n", 61)+".", 4)
	for i := range 10_000 {
		version := Version(newVersion(fmt.Sprintf("%s%05d", name[:248], i)))
		longest.Policies = append(longest.Policies, version)
		longest.Violations = append(longest.Violations, Violations{Version: version, Total: 1 << 62})
	}
	text, err := Encode(longest)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Decode(text); err != nil {
		t.Errorf("the longest names: %v", err)
	}
}

// Only what the webhook writes is a report. Guards invariant 11 of the design.
func TestForgedReportsAreErrors(t *testing.T) {
	valid, err := Encode(newReport(2))
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"nothing":              "",
		"no JSON":              "{",
		"another text behind":  valid + "{}",
		"white space":          " " + valid,
		"another format":       strings.Replace(valid, `"format":1`, `"format":2`, 1),
		"another field":        strings.Replace(valid, `"format":1`, `"format":1,"more":1`, 1),
		"a field twice":        strings.Replace(valid, `"format":1`, `"format":1,"format":1`, 1),
		"another case":         strings.Replace(valid, `"format"`, `"Format"`, 1),
		"a negative number":    strings.Replace(valid, `"total":60`, `"total":-60`, 1),
		"a number too large":   strings.Replace(valid, `"total":60`, `"total":99999999999999999999`, 1),
		"parts above the sum":  strings.Replace(valid, `"total":60`, `"total":7`, 1),
		"a digest":             strings.Replace(valid, `"abab`, `"xbab`, 1),
		"a policy's name":      strings.Replace(valid, `policy-00000`, `policy 00000`, 1),
		"a policy twice":       strings.ReplaceAll(valid, `policy-00001`, `policy-00000`),
		"a project's name":     strings.Replace(valid, `"project-2"`, `"project/2"`, 1),
		"control characters":   strings.Replace(valid, `"anna"`, `"an\u001bna"`, 1),
		"a long message":       strings.Replace(valid, `too `, strings.Repeat("x", 300), 1),
		"no evaluation":        strings.Replace(valid, `"evaluations":1`, `"evaluations":0`, 1),
		"longer than may be":   valid + strings.Repeat(" ", maxReportBytes),
		"lists in other order": strings.Replace(strings.Replace(valid, `policy-00000`, `policy-x`, 1), `policy-00001`, `policy-a`, 1),
	} {
		if text == valid {
			t.Fatalf("%s: the test changes nothing", name)
		}
		if _, err := Decode(text); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func FuzzDecode(f *testing.F) {
	for _, policies := range []int{0, 1, 3} {
		text, err := Encode(newReport(policies))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Add(`{"format":1,"program":"","policySet":"","violations":[{"policy":"a","total":-1}]}`)
	f.Fuzz(func(t *testing.T, text string) {
		report, err := Decode(text)
		if err != nil {
			return
		}
		again, err := Encode(report)
		if err != nil || again != text {
			t.Errorf("accepted, but it would be written as %q (%v)", again, err)
		}
		for _, v := range report.Violations {
			if v.Total < 0 || len(v.Projects) > MaxProjects || len(v.Examples) > maxExamples {
				t.Errorf("violations out of range: %+v", v)
			}
		}
	})
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

// A project with many violations does not displace the examples of others.
func TestExamplesAreOfSeveralProjects(t *testing.T) {
	var counter Counter
	version := newVersion("a")
	counter.Add(version, newExample("b", "first", 0))
	counter.AddExample(version, newExample("c", "first", 1))
	for i := range 50 {
		counter.Add(version, newExample("a", fmt.Sprintf("pod-%d", i), 10+i))
		counter.Add(version, newExample("a", "same", 11+i))
	}
	got := counter.Violations([]engine.Version{version})[0]
	var names []string
	for _, e := range got.Examples {
		names = append(names, e.Project+"/"+e.Name)
	}
	if want := []string{"a/same", "a/pod-49", "a/pod-48", "c/first", "b/first"}; !slices.Equal(names, want) {
		t.Errorf("examples %v, want %v", names, want)
	}
	if got.Total != 101 {
		t.Errorf("%d violations, want 101", got.Total)
	}
	if diff := cmp.Diff(got.Examples, MergeExamples(got.Examples[:2], got.Examples[2:], got.Examples)); diff != "" {
		t.Errorf("merged (-want +got):\n%s", diff)
	}
	if rest := counter.Violations(nil); len(rest) > 0 {
		t.Errorf("policies that are no longer in force: %+v", rest)
	}
}

// What a report says of an object is short and printable, whatever the object's names are. Guards
// invariant 10 of the design.
func TestHostileNamesMakeAValidReport(t *testing.T) {
	var counter Counter
	version := newVersion("a")
	long := strings.Repeat("\x1b[2Jü\u202e\xff", 10_000)
	example := v1alpha1.PolicyExample{
		Time: metav1.NewTime(start.Add(time.Microsecond)), Project: "a", Kind: "Pod", Namespace: "a", Name: long, User: long, Message: long,
		Changes: slices.Repeat([]string{long}, 100),
	}
	counter.Add(version, example)
	text, err := Encode(NewReport("v1", []engine.Version{version}, counter.Violations([]engine.Version{version})))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Decode(text); err != nil || len(text) > 4096 {
		t.Errorf("%d bytes, %v", len(text), err)
	}
}

// Evaluations that took too long count for an hour, by project. Guards invariant 10 of the design.
func TestTimeOutsCountForAnHour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var counter Counter
		version := newVersion("a")
		timedOut := func() []TimedOut {
			for _, v := range counter.Violations([]engine.Version{version}) {
				return v.TimedOut
			}
			return nil
		}
		for range 3 {
			counter.AddTimeOut(version, "a")
		}
		time.Sleep(30 * time.Minute)
		counter.AddTimeOut(version, "a")
		for range 5 {
			counter.AddTimeOut(version, "b")
		}
		if diff := cmp.Diff([]TimedOut{{"b", 5}, {"a", 4}}, timedOut()); diff != "" {
			t.Errorf("after half an hour (-want +got):\n%s", diff)
		}
		time.Sleep(35 * time.Minute)
		if diff := cmp.Diff([]TimedOut{{"b", 5}, {"a", 1}}, timedOut()); diff != "" {
			t.Errorf("after an hour (-want +got):\n%s", diff)
		}
		time.Sleep(24 * time.Hour)
		if got := timedOut(); len(got) > 0 {
			t.Errorf("a day later: %v", got)
		}
		for i := range 10_000 {
			counter.AddTimeOut(version, fmt.Sprint("p", i))
		}
		if got := timedOut(); len(got) != MaxProjects {
			t.Errorf("%d projects", len(got))
		}
	})
}
