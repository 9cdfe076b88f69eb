// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package audit_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"pgregory.net/rapid"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/audit"
	"sluice.dev/policies/decision"
)

// added is one call of a collector.
type added struct {
	root    audit.Object
	pod     bool
	finding decision.AuditFinding
}

func drawAdded(t *rapid.T) []added {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) added {
		return added{
			root: audit.Object{
				Namespace:  rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "namespace"),
				APIVersion: "v1", Kind: rapid.SampledFrom([]string{"Pod", "Job", "Deployment"}).Draw(t, "kind"),
				Name: fmt.Sprint("n", rapid.IntRange(0, 9).Draw(t, "name")),
			},
			pod: rapid.Bool().Draw(t, "pod"),
			finding: decision.AuditFinding{
				Policy:      rapid.SampledFrom([]string{"", "p", "q"}).Draw(t, "policy"),
				Enforcement: rapid.SampledFrom([]v1alpha1.Enforcement{"Deny", "Warn", "DryRun"}).Draw(t, "enforcement"),
				Result:      rapid.SampledFrom([]decision.AuditResult{"Denied", "Changed", "Warned", "Failed"}).Draw(t, "result"),
				Message:     rapid.StringMatching(`[a-z<>&"ü ]{0,20}`).Draw(t, "message"), Fix: rapid.StringMatching(`[a-z]{0,5}`).Draw(t, "fix"),
				More:    rapid.IntRange(0, 3).Draw(t, "more"),
				Changes: rapid.SliceOfN(rapid.StringMatching(`[a-z.]{1,8}`), 0, 3).Draw(t, "changes"),
			},
		}
	}), 0, 80).Draw(t, "added")
}

func collect(limits audit.Limits, all []added) *audit.Report {
	collector := audit.NewCollector(limits)
	for _, a := range all {
		collector.Add(a.root, "project-"+a.root.Namespace, a.pod, []decision.AuditFinding{a.finding})
	}
	return collector.Report()
}

// A report has at most as many entries as the limits allow, counts all findings, each once, and is the same for equal findings.
func TestReportIsBoundedAndDeterministic(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := drawAdded(t)
		limits := audit.Limits{Namespace: rapid.IntRange(1, 20).Draw(t, "perNamespace"), Total: rapid.IntRange(1, 40).Draw(t, "total")}
		report := collect(limits, all)
		if diff := cmp.Diff(report, collect(limits, all)); diff != "" {
			t.Fatalf("the same findings have another report\n%s", diff)
		}
		perNamespace := map[string]int{}
		for i := range report.Entries {
			perNamespace[report.Entries[i].Namespace]++
		}
		for namespace, n := range perNamespace {
			if n > limits.Namespace {
				t.Fatalf("namespace %s has %d entries", namespace, n)
			}
		}
		if len(report.Entries) > limits.Total {
			t.Fatalf("%d entries", len(report.Entries))
		}
		distinct := map[string]bool{}
		for _, a := range all {
			distinct[fmt.Sprint(a.root, a.finding.Policy, a.finding.Result)] = true
		}
		total := report.Total()
		if n := total.Violations() + total.Warned + total.Failed; n != len(distinct) {
			t.Fatalf("counted %d findings of %d", n, len(distinct))
		}
		byPolicy := 0
		for _, counts := range report.Policies {
			byPolicy += counts.Violations()
			sum := 0
			for _, n := range counts.ByProject {
				sum += n
			}
			if sum != counts.Violations() {
				t.Fatalf("%d violations by project, %d of the policy", sum, counts.Violations())
			}
		}
		if byPolicy != total.Violations() {
			t.Fatalf("%d violations by policy, %d by namespace", byPolicy, total.Violations())
		}
	})
}

// The order of the objects does not change a report that omits nothing, but for the messages that the first object decides.
func TestReportDoesNotDependOnOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := drawAdded(t)
		for i := range all {
			f := &all[i].finding
			f.Message, f.Fix, f.More, f.Changes, f.Enforcement = "m", "", 0, nil, v1alpha1.EnforcementDeny
		}
		want := collect(audit.DefaultLimits, all)
		random := rand.New(rand.NewPCG(1, rapid.Uint64().Draw(t, "seed"))) //nolint:gosec // an order, not a secret
		random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		if diff := cmp.Diff(want, collect(audit.DefaultLimits, all)); diff != "" {
			t.Fatalf("another order\n%s", diff)
		}
	})
}

// A Report of OpenReports has what the entries have, in few enough bytes.
func TestOpenReportHasAllEntries(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		report := collect(audit.DefaultLimits, drawAdded(t))
		for namespace, counts := range report.Namespaces {
			var want []audit.Entry
			for i := range report.Entries {
				if entry := report.Entries[i]; entry.Namespace == namespace {
					if len(entry.Changes) == 0 {
						entry.Changes = nil
					}
					want = append(want, entry)
				}
			}
			object := audit.NewOpenReport(namespace, want, counts)
			got, omitted := audit.ParseOpenReport(object)
			if diff := cmp.Diff(want, got); diff != "" || omitted != 0 {
				t.Fatalf("%d omitted, -want +got\n%s", omitted, diff)
			}
		}
	})
}

// A Report of the largest findings omits those that do not fit in an object, and says how many.
func TestOpenReportIsBounded(t *testing.T) {
	collector := audit.NewCollector(audit.DefaultLimits)
	for i := range 800 {
		collector.Add(audit.Object{Namespace: "a", APIVersion: "v1", Kind: "Pod", Name: fmt.Sprintf("%0253d", i)}, "a", true, []decision.AuditFinding{{
			Policy: "p", Enforcement: "Deny", Result: "Denied", Message: strings.Repeat("<", 256), Fix: strings.Repeat("&", 256),
			Changes: []string{strings.Repeat(">", 128), strings.Repeat(">", 128)},
		}})
	}
	report := collector.Report()
	object := audit.NewOpenReport("a", report.Entries, report.Namespaces["a"])
	raw, err := json.Marshal(object.Object)
	if err != nil || len(raw) > 3<<19 {
		t.Errorf("%v, %d bytes", err, len(raw))
	}
	entries, omitted := audit.ParseOpenReport(object)
	if len(entries)+omitted != 800 || len(entries) < 100 {
		t.Errorf("%d entries, %d omitted", len(entries), omitted)
	}
	if summary, _, _ := unstructured.NestedInt64(object.Object, "summary", "fail"); summary != 800 {
		t.Errorf("the summary counts %d", summary)
	}
}

// FuzzParseOpenReport parses Reports that users wrote: their rights may allow it.
func FuzzParseOpenReport(f *testing.F) {
	for _, seed := range []string{
		`{}`, `{"results":1}`, `{"results":[1,{"source":"sluice"},{"source":"sluice","resources":[1]}]}`,
		`{"metadata":{"annotations":{"sluice.dev/omitted-results":"-5"}},"results":[{"source":"sluice","policy":7,"resources":[{"name":"a"}],"properties":{"pods":"x","more":"3"}}]}`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		report := &unstructured.Unstructured{}
		if json.Unmarshal([]byte(text), &report.Object) != nil {
			return
		}
		entries, omitted := audit.ParseOpenReport(report)
		if omitted < 0 {
			t.Errorf("%d omitted", omitted)
		}
		for i := range entries {
			if entries[i].Pods < 0 || entries[i].More < 0 {
				t.Errorf("negative numbers: %+v", entries[i])
			}
		}
	})
}
