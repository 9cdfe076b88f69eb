// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"bytes"
	"context"
	"encoding/csv"
	"io"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"gotest.tools/v3/golden"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"sluice.dev/api/v1alpha1"
)

const gpuHour = 3600 * 1000 // of one GPU

func usageRecord(department, project, month string, entries ...v1alpha1.UsageEntry) v1alpha1.UsageRecord {
	return v1alpha1.UsageRecord{
		ObjectMeta: metav1.ObjectMeta{Name: project + "-" + month},
		Spec:       v1alpha1.UsageRecordSpec{Project: project, Month: month},
		Status:     v1alpha1.UsageRecordStatus{Department: department, Entries: entries},
	}
}

func usageEntry(user string, t v1alpha1.WorkloadType, pool string, used int64) v1alpha1.UsageEntry {
	return v1alpha1.UsageEntry{User: user, WorkloadType: t, NodePool: pool, GPUMilliSeconds: used}
}

// octoberRecords returns records with hostile names.
func octoberRecords() []v1alpha1.UsageRecord {
	return []v1alpha1.UsageRecord{
		usageRecord("h2-students", "thesis-mueller", "2026-10",
			usageEntry("anna.müller@example.org", v1alpha1.WorkloadInteractive, "dgx-mig", gpuHour/2),
			usageEntry("anna.müller@example.org", v1alpha1.WorkloadTrain, "dgx", 3*gpuHour),
			usageEntry("anna.müller@example.org", v1alpha1.WorkloadTrain, "dgx-mig", gpuHour/20), // 0.05 h
		),
		usageRecord("h2-research", "protein-folding", "2026-10",
			usageEntry("anna.müller@example.org", v1alpha1.WorkloadTrain, "dgx", 1200*gpuHour+1799),
			usageEntry(`=HYPERLINK("http://x","a")`, v1alpha1.WorkloadTrain, "dgx", 1),
			usageEntry("@SUM(A1),b", v1alpha1.WorkloadTrain, "dgx", 1),
			usageEntry(" +1", v1alpha1.WorkloadTrain, "dgx", 1),
			usageEntry("－2", v1alpha1.WorkloadTrain, "dgx", 1),
			usageEntry("two\nlines\t\r", v1alpha1.WorkloadTrain, "dgx", 1),
			usageEntry("\x1b]0;title\x07\x1b[31m\u009b5m\u202e", v1alpha1.WorkloadTrain, "dgx", 1),
			usageEntry(`say "hi", you`, v1alpha1.WorkloadTrain, "dgx", 1),
			usageEntry("", v1alpha1.WorkloadTrain, "dgx", 1),
		),
	}
}

// measuredRecords returns records of users whose GPUs were used in part, never, always, and not measured.
func measuredRecords() []v1alpha1.UsageRecord {
	measured := func(user string, requested, used, idle int64) v1alpha1.UsageEntry {
		e := usageEntry(user, v1alpha1.WorkloadTrain, "dgx", requested*gpuHour)
		e.UsedGPUMilliSeconds, e.IdleGPUMilliSeconds = used*gpuHour, idle*gpuHour
		return e
	}
	return []v1alpha1.UsageRecord{usageRecord("d", "p", "2026-10",
		measured("anna", 100, 30, 30), measured("ben", 12, 0, 12), measured("carla", 7, 7, 0), measured("dora", 3, 0, 0),
	)}
}

func TestUsageReportOutput(t *testing.T) {
	for _, by := range []usageGrouping{groupByAll, groupByProject, groupByUser, groupByType, groupByPool} {
		report, err := newUsageReport("2026-10", by, octoberRecords())
		if err != nil {
			t.Fatal(err)
		}
		name := string(by)
		if by == groupByAll {
			name = "all"
		}
		golden.Assert(t, usageText(t, writeUsageTable, report, requestedColumns), "usage/"+name+".txt")
		golden.Assert(t, usageText(t, writeUsageCSV, report, requestedColumns), "usage/"+name+".csv")
		golden.Assert(t, jsonText(t, report), "usage/"+name+".json")
	}
	efficiency, err := newUsageReport("2026-10", groupByUser, measuredRecords())
	if err != nil {
		t.Fatal(err)
	}
	golden.Assert(t, usageText(t, writeUsageTable, efficiency, efficiencyColumns), "usage/efficiency.txt")
	golden.Assert(t, usageText(t, writeUsageCSV, efficiency, efficiencyColumns), "usage/efficiency.csv")
	golden.Assert(t, jsonText(t, efficiency), "usage/efficiency.json")
	none, err := newUsageReport("2026-02", groupByAll, nil)
	if err != nil {
		t.Fatal(err)
	}
	golden.Assert(t, usageText(t, writeUsageTable, none, requestedColumns), "usage/none.txt")
	golden.Assert(t, jsonText(t, none), "usage/none.json")
}

func usageText(t *testing.T, write func(io.Writer, usageReport, []amountColumn) error, report usageReport, columns []amountColumn) string {
	t.Helper()
	var out bytes.Buffer
	if err := write(&out, report, columns); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestUsageReportSumIsExact(t *testing.T) {
	for _, by := range []usageGrouping{groupByAll, groupByProject, groupByUser, groupByType, groupByPool} {
		report, err := newUsageReport("2026-10", by, octoberRecords())
		if err != nil {
			t.Fatal(err)
		}
		var sum int64
		for _, row := range report.Rows {
			sum += row.GPUMilliSeconds
		}
		if want := int64(1200*gpuHour + 1799 + 8 + 3*gpuHour + gpuHour/2 + gpuHour/20); sum != want || report.GPUMilliSeconds != want {
			t.Errorf("by %q: the sum of the rows is %d, the total is %d, want %d", by, sum, report.GPUMilliSeconds, want)
		}
	}
}

func TestUsageReportRejectsInvalidRecords(t *testing.T) {
	most := usageEntry("a", v1alpha1.WorkloadTrain, "dgx", math.MaxInt64)
	for name, entries := range map[string][]v1alpha1.UsageEntry{
		"too much":                 {most, usageEntry("b", v1alpha1.WorkloadTrain, "dgx", 1)},
		"negative":                 {usageEntry("a", v1alpha1.WorkloadTrain, "dgx", -1)},
		"more used than requested": {{User: "a", GPUMilliSeconds: 5, UsedGPUMilliSeconds: 6}},
		"used and idle":            {{User: "a", GPUMilliSeconds: 5, UsedGPUMilliSeconds: 3, IdleGPUMilliSeconds: 3}},
		"more idle than requested": {{User: "a", GPUMilliSeconds: 5, IdleGPUMilliSeconds: 6}},
		"negative use":             {{User: "a", GPUMilliSeconds: 5, UsedGPUMilliSeconds: -1}},
	} {
		_, err := newUsageReport("2026-10", groupByAll, []v1alpha1.UsageRecord{usageRecord("d", "p", "2026-10", entries...)})
		if err == nil || !strings.Contains(err.Error(), "p-2026-10") {
			t.Errorf("%s: err = %v, want the name of the record", name, err)
		}
	}
	if _, err := newUsageReport("2026-10", groupByAll, []v1alpha1.UsageRecord{usageRecord("d", "p", "2026-10", most)}); err != nil {
		t.Error(err)
	}
}

func TestFormatGPUHours(t *testing.T) {
	for used, want := range map[int64][2]string{
		0:              {"0.0", "0.000"},
		1799:           {"0.0", "0.000"},
		1800:           {"0.0", "0.001"},
		gpuHour/20 - 1: {"0.0", "0.050"},
		gpuHour / 20:   {"0.1", "0.050"},
		gpuHour - 1:    {"1.0", "1.000"},
		10 * gpuHour:   {"10.0", "10.000"},
		math.MaxInt64:  {"2562047788015.2", "2562047788015.216"},
	} {
		if got := [2]string{formatTenthHours(used), formatGPUHours(used)}; got != want {
			t.Errorf("%d = %v, want %v", used, got, want)
		}
	}
}

func FuzzWriteUsageCSV(f *testing.F) {
	f.Add("=1+1", "a,b")
	f.Add("\x1b[31m", "\"\r\n")
	f.Fuzz(func(t *testing.T, user, pool string) {
		records := []v1alpha1.UsageRecord{usageRecord("d", "p", "2026-10", usageEntry(user, v1alpha1.WorkloadTrain, pool, 1))}
		for _, by := range []usageGrouping{groupByUser, groupByPool} {
			report, err := newUsageReport("2026-10", by, records)
			if err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			if err := writeUsageCSV(&out, report, requestedColumns); err != nil {
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
				t.Fatalf("the cell %q begins like a formula", cell)
			}
		}
	})
}

func TestParseMonth(t *testing.T) {
	for text, ok := range map[string]bool{
		"2026-10": true, "0001-01": true,
		"": false, "2026-13": false, "2026-00": false, "2026-1": false, "26-10": false, "2026-10-01": false, " 2026-10": false, "10-2026": false,
	} {
		if got, err := parseMonth(text); (err == nil) != ok || ok && got != text {
			t.Errorf("parseMonth(%q) = %q, %v", text, got, err)
		}
	}
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	last := time.Date(2026, 10, 31, 23, 30, 0, 0, time.UTC)
	if got := formatMonth(last, berlin); got != "2026-11" {
		t.Errorf("the month is %s, want 2026-11, which has begun in Berlin", got)
	}
}

func TestUsageGroupingFlag(t *testing.T) {
	for text, ok := range map[string]bool{"user": true, "type": true, "pool": true, "project": true, "User": true, "": false, "all": false} {
		cmd := newReportCommand()
		err := cmd.ParseFlags([]string{"--by", text})
		if (err == nil) != ok {
			t.Errorf("--by %q: %v", text, err)
		}
		if by := cmd.Flag("by").Value.String(); ok && by != strings.ToLower(text) {
			t.Errorf("--by %q is %q", text, by)
		}
	}
	if by := newReportCommand().Flag("by").Value.String(); by != string(groupByAll) {
		t.Errorf("without --by it is %q", by)
	}
}

func TestListUsageRecords(t *testing.T) {
	var objects []client.Object
	for _, record := range append(octoberRecords(), usageRecord("h2-students", "thesis-mueller", "2026-09")) {
		objects = append(objects, &record)
	}
	c := newFakeClient(t, interceptor.Funcs{}, objects...)
	tests := map[string]struct {
		month, department, project string
		want                       []string
	}{
		"all":                   {"2026-10", "", "", []string{"protein-folding-2026-10", "thesis-mueller-2026-10"}},
		"a department":          {"2026-10", "h2-students", "", []string{"thesis-mueller-2026-10"}},
		"a project":             {"2026-10", "", "protein-folding", []string{"protein-folding-2026-10"}},
		"a project of another":  {"2026-10", "h2-students", "protein-folding", nil},
		"another month":         {"2026-09", "", "", []string{"thesis-mueller-2026-09"}},
		"a month without any":   {"2025-01", "", "", nil},
		"a project without any": {"2026-09", "", "protein-folding", nil},
		"an unknown department": {"2026-10", "nobody", "", nil},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			records, err := listUsageRecords(t.Context(), c, tc.month, tc.department, tc.project)
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
			return forbiddenError()
		},
	})
	if _, err := listUsageRecords(t.Context(), forbidding, "2026-10", "", ""); err == nil ||
		!strings.Contains(err.Error(), "for administrators") {
		t.Errorf("err = %v, want a hint on the rights", err)
	}
}
