// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"bytes"
	"context"
	"encoding/csv"
	"flag"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"sluice.dev/api/scheme"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/cmd/sluice/show"
)

var update = flag.Bool("update", false, "write the reports into testdata anew")

const hour = 3600 * 1000 // of one GPU

func record(department, project, month string, entries ...v1alpha1.UsageEntry) v1alpha1.UsageRecord {
	return v1alpha1.UsageRecord{
		ObjectMeta: metav1.ObjectMeta{Name: project + "-" + month},
		Spec:       v1alpha1.UsageRecordSpec{Project: project, Month: month},
		Status:     v1alpha1.UsageRecordStatus{Department: department, Entries: entries},
	}
}

func entry(user string, t v1alpha1.WorkloadType, pool string, used int64) v1alpha1.UsageEntry {
	return v1alpha1.UsageEntry{User: user, WorkloadType: t, NodePool: pool, GPUMilliSeconds: used}
}

// october has names of every kind that people have thought of.
func october() []v1alpha1.UsageRecord {
	return []v1alpha1.UsageRecord{
		record("h2-students", "thesis-mueller", "2026-10",
			entry("anna.müller@example.org", v1alpha1.WorkloadInteractive, "dgx-mig", hour/2),
			entry("anna.müller@example.org", v1alpha1.WorkloadTrain, "dgx", 3*hour),
			entry("anna.müller@example.org", v1alpha1.WorkloadTrain, "dgx-mig", hour/20), // 0.05 h
		),
		record("h2-research", "protein-folding", "2026-10",
			entry("anna.müller@example.org", v1alpha1.WorkloadTrain, "dgx", 1200*hour+1799),
			entry(`=HYPERLINK("http://x","a")`, v1alpha1.WorkloadTrain, "dgx", 1),
			entry("@SUM(A1),b", v1alpha1.WorkloadTrain, "dgx", 1),
			entry(" +1", v1alpha1.WorkloadTrain, "dgx", 1),
			entry("－2", v1alpha1.WorkloadTrain, "dgx", 1),
			entry("two\nlines\t\r", v1alpha1.WorkloadTrain, "dgx", 1),
			entry("\x1b]0;title\x07\x1b[31m\u009b5m\u202e", v1alpha1.WorkloadTrain, "dgx", 1),
			entry(`say "hi", you`, v1alpha1.WorkloadTrain, "dgx", 1),
			entry("", v1alpha1.WorkloadTrain, "dgx", 1),
		),
	}
}

func TestReports(t *testing.T) {
	for _, by := range []By{ByAll, ByProject, ByUser, ByType, ByPool} {
		report, err := Sum("2026-10", by, october())
		if err != nil {
			t.Fatal(err)
		}
		name := string(by)
		if by == ByAll {
			name = "all"
		}
		golden(t, name+".txt", func(b *bytes.Buffer) error { return Table(b, report) })
		golden(t, name+".csv", func(b *bytes.Buffer) error { return CSV(b, report) })
		golden(t, name+".json", func(b *bytes.Buffer) error { return show.JSON(b, report) })
	}
	none, err := Sum("2026-02", ByAll, nil)
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "none.txt", func(b *bytes.Buffer) error { return Table(b, none) })
	golden(t, "none.json", func(b *bytes.Buffer) error { return show.JSON(b, none) })
}

func golden(t *testing.T, name string, write func(*bytes.Buffer) error) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		var got bytes.Buffer
		if err := write(&got); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join("testdata", name)
		if *update {
			if err := os.WriteFile(path, got.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), got.String()); diff != "" {
			t.Errorf("%s differs (-want +got; -update writes it anew)\n%s", path, diff)
		}
	})
}

func TestSumIsExact(t *testing.T) {
	for _, by := range []By{ByAll, ByProject, ByUser, ByType, ByPool} {
		report, err := Sum("2026-10", by, october())
		if err != nil {
			t.Fatal(err)
		}
		var sum int64
		for _, row := range report.Rows {
			sum += row.GPUMilliSeconds
		}
		if want := int64(1200*hour + 1799 + 8 + 3*hour + hour/2 + hour/20); sum != want || report.GPUMilliSeconds != want {
			t.Errorf("by %q: rows sum up to %d, the total is %d, want %d", by, sum, report.GPUMilliSeconds, want)
		}
	}
}

func TestSumRefusesNonsense(t *testing.T) {
	most := entry("a", v1alpha1.WorkloadTrain, "dgx", math.MaxInt64)
	for name, entries := range map[string][]v1alpha1.UsageEntry{
		"too much": {most, entry("b", v1alpha1.WorkloadTrain, "dgx", 1)},
		"negative": {entry("a", v1alpha1.WorkloadTrain, "dgx", -1)},
	} {
		_, err := Sum("2026-10", ByAll, []v1alpha1.UsageRecord{record("d", "p", "2026-10", entries...)})
		if err == nil || !strings.Contains(err.Error(), "p-2026-10") {
			t.Errorf("%s: err = %v, want it to name the record", name, err)
		}
	}
	if _, err := Sum("2026-10", ByAll, []v1alpha1.UsageRecord{record("d", "p", "2026-10", most)}); err != nil {
		t.Error(err)
	}
}

func TestRounding(t *testing.T) {
	for used, want := range map[int64][2]string{
		0:             {"0.0", "0.000"},
		1799:          {"0.0", "0.000"},
		1800:          {"0.0", "0.001"},
		hour/20 - 1:   {"0.0", "0.050"},
		hour / 20:     {"0.1", "0.050"},
		hour - 1:      {"1.0", "1.000"},
		10 * hour:     {"10.0", "10.000"},
		math.MaxInt64: {"2562047788015.2", "2562047788015.216"},
	} {
		if got := [2]string{tenths(used), hours(used)}; got != want {
			t.Errorf("%d = %v, want %v", used, got, want)
		}
	}
}

func FuzzCSV(f *testing.F) {
	f.Add("=1+1", "a,b")
	f.Add("\x1b[31m", "\"\r\n")
	f.Fuzz(func(t *testing.T, user, pool string) {
		records := []v1alpha1.UsageRecord{record("d", "p", "2026-10", entry(user, v1alpha1.WorkloadTrain, pool, 1))}
		for _, by := range []By{ByUser, ByPool} {
			report, err := Sum("2026-10", by, records)
			if err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			if err := CSV(&out, report); err != nil {
				t.Fatal(err)
			}
			for _, r := range out.String() {
				if r != '\r' && r != '\n' && !strconv.IsGraphic(r) {
					t.Fatalf("the CSV has %q", r)
				}
			}
			lines, err := csv.NewReader(&out).ReadAll()
			if err != nil || len(lines) != 2 || len(lines[1]) != 4 {
				t.Fatalf("it reads back as %q: %v", lines, err)
			}
			if cell := lines[1][1]; cell != "" && strings.ContainsRune("=+-@\t\r", rune(cell[0])) {
				t.Fatalf("the cell %q begins as a formula does", cell)
			}
		}
	})
}

func TestMonth(t *testing.T) {
	for text, ok := range map[string]bool{
		"2026-10": true, "0001-01": true,
		"": false, "2026-13": false, "2026-00": false, "2026-1": false, "26-10": false, "2026-10-01": false, " 2026-10": false, "10-2026": false,
	} {
		if got, err := ParseMonth(text); (err == nil) != ok || ok && got != text {
			t.Errorf("ParseMonth(%q) = %q, %v", text, got, err)
		}
	}
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	last := time.Date(2026, 10, 31, 23, 30, 0, 0, time.UTC)
	if got := MonthOf(last, berlin); got != "2026-11" {
		t.Errorf("the month is %s, want 2026-11: it has begun in Berlin", got)
	}
}

func TestParseBy(t *testing.T) {
	for text, ok := range map[string]bool{"": true, "user": true, "type": true, "pool": true, "project": true, "User": false, "all": false} {
		if _, err := ParseBy(text); (err == nil) != ok {
			t.Errorf("ParseBy(%q) = %v", text, err)
		}
	}
}

func TestList(t *testing.T) {
	kinds, err := scheme.New()
	if err != nil {
		t.Fatal(err)
	}
	builder := fake.NewClientBuilder().WithScheme(kinds)
	for _, r := range append(october(), record("h2-students", "thesis-mueller", "2026-09")) {
		builder.WithObjects(&r)
	}
	c := builder.Build()
	tests := map[string]struct {
		month, department, project string
		want                       []string
	}{
		"all":                    {"2026-10", "", "", []string{"protein-folding-2026-10", "thesis-mueller-2026-10"}},
		"a department":           {"2026-10", "h2-students", "", []string{"thesis-mueller-2026-10"}},
		"a project":              {"2026-10", "", "protein-folding", []string{"protein-folding-2026-10"}},
		"a project of another":   {"2026-10", "h2-students", "protein-folding", nil},
		"another month":          {"2026-09", "", "", []string{"thesis-mueller-2026-09"}},
		"a month without any":    {"2025-01", "", "", nil},
		"a project without any":  {"2026-09", "", "protein-folding", nil},
		"a department of no one": {"2026-10", "nobody", "", nil},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			records, err := List(t.Context(), c, tc.month, tc.department, tc.project)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for i := range records {
				got = append(got, records[i].Name)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("records differ (-want +got)\n%s", diff)
			}
		})
	}
	forbidding := interceptor.NewClient(c, interceptor.Funcs{
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
			return apierrors.NewForbidden(schema.GroupResource{Group: v1alpha1.Group, Resource: "usagerecords"}, "", nil)
		},
	})
	if _, err := List(t.Context(), forbidding, "2026-10", "", ""); err == nil || !strings.Contains(err.Error(), "for administrators") {
		t.Errorf("err = %v, want it to say who may read them", err)
	}
}
