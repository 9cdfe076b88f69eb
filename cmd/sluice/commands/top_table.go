// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/cmd/sluice/printer"
)

// The fields by which top sorts.
const (
	sortByProject = "project"
	sortByName    = "name"
	sortByNode    = "node"
	sortByShare   = "share"
	sortByMemory  = "memory"
	sortByIdle    = "idle"
)

var topSortKeys = []string{sortByProject, sortByName, sortByNode, sortByShare, sortByMemory, sortByIdle}

// topFilter selects rows. Empty fields select all.
type topFilter struct {
	namespace, project, node string
	// idle is the shortest idle time; nil selects all rows.
	idle *time.Duration
}

func (f topFilter) withoutIdle() topFilter {
	f.idle = nil
	return f
}

// topFields are the fields of a row by which it is selected and sorted.
type topFields struct {
	// projects and namespaces are those of the pods of the row.
	projects, namespaces []string
	node, name           string
	figures              *useFigures
}

func (f topFilter) selects(row topFields) bool {
	idle := row.figures.IdleSeconds
	return (f.namespace == "" || slices.Contains(row.namespaces, f.namespace)) &&
		(f.project == "" || slices.Contains(row.projects, f.project)) &&
		(f.node == "" || row.node == f.node) &&
		(f.idle == nil || idle != nil && *idle >= int64(*f.idle/time.Second))
}

// arrange returns the selected rows in the order of a field: names ascending, figures descending and unknown
// figures last.
func arrange[R interface{ fields() topFields }](rows []R, filter topFilter, by string) []R {
	rows = slices.DeleteFunc(rows, func(row R) bool { return !filter.selects(row.fields()) })
	slices.SortStableFunc(rows, func(one, other R) int {
		a, b := one.fields(), other.fields()
		first := 0
		switch by {
		case sortByProject:
			first = cmp.Or(slices.Compare(a.projects, b.projects), slices.Compare(a.namespaces, b.namespaces))
		case sortByNode:
			first = cmp.Compare(a.node, b.node)
		case sortByShare:
			first = compareFigures(a.figures.ShareMiB, b.figures.ShareMiB)
		case sortByMemory:
			first = compareFigures(a.figures.MemoryMiB, b.figures.MemoryMiB)
		case sortByIdle:
			first = compareFigures(a.figures.IdleSeconds, b.figures.IdleSeconds)
		}
		return cmp.Or(first, cmp.Compare(a.name, b.name))
	})
	return rows
}

// compareFigures orders figures from the largest to the smallest, and unknown ones last.
func compareFigures(a, b *int64) int {
	switch {
	case a == nil && b == nil:
		return 0
	case a == nil:
		return 1
	case b == nil:
		return -1
	}
	return cmp.Compare(*b, *a)
}

func (r topPodRow) fields() topFields {
	return topFields{[]string{r.Project}, []string{r.Namespace}, r.Node, r.Name, &r.useFigures}
}

func (r topProjectRow) fields() topFields {
	return topFields{[]string{r.Project}, nil, "", r.Project, &r.useFigures}
}

func (r topDeviceRow) fields() topFields {
	return topFields{r.projects, r.namespaces, r.Node, fmt.Sprintf("%s %03d %s", r.Node, r.GPU, r.Instance), &r.useFigures}
}

func topPodTable(rows []topPodRow, o *topObservation, zone *time.Location) printer.Table {
	ofClocks := o.source == sourceClocks
	table := printer.Table{Columns: []printer.Column{
		{Name: "NAMESPACE"},
		{Name: "PROJECT"},
		{Name: "POD", Hidden: ofClocks},
		{Name: "WORKLOAD", Hidden: !ofClocks},
		{Name: "NODE", Hidden: ofClocks},
		{Name: "GPUS", Hidden: !ofClocks},
		{Name: "SHARE"},
		{Name: "MEMORY"},
		{Name: "USE"},
		{Name: "IDLE"},
		{Name: "SOURCE", Hidden: ofClocks},
		{Name: "SAMPLED"},
		{Name: "FINDINGS", Hidden: ofClocks},
		{Name: "LAST ACTIVE", Wide: true},
		{Name: "DEVICES", Wide: true, Hidden: ofClocks},
	}}
	for i := range rows {
		r := &rows[i]
		table.Rows = append(table.Rows, []string{
			r.Namespace, r.Project, r.Name, r.Kind + "/" + r.Name, r.Node, r.GPUs,
			formatMiB(r.ShareMiB), r.memory(r.ShareMiB), r.use(), formatSeconds(r.IdleSeconds), joinSources(r.UtilizationSources), r.sampled(o.now),
			joinReasons(r.Findings), formatOptionalMinute(r.LastActive, zone), strings.Join(r.Devices, ","),
		})
	}
	return table
}

func topProjectTable(rows []topProjectRow, o *topObservation, zone *time.Location) printer.Table {
	pods := "PODS"
	if o.source == sourceClocks {
		pods = "WORKLOADS"
	}
	table := printer.Table{Columns: append(
		printer.Columns("PROJECT", pods, "BUSY", "IDLE", "UNKNOWN", "SHARE", "MEMORY", "USE", "IDLE FOR", "SAMPLED"),
		printer.Column{Name: "LAST ACTIVE", Wide: true},
	)}
	for i := range rows {
		r := &rows[i]
		table.Rows = append(table.Rows, []string{
			r.Project, strconv.Itoa(r.Pods), strconv.Itoa(r.Busy), strconv.Itoa(r.Idle), strconv.Itoa(r.Unknown),
			formatMiB(r.ShareMiB), r.memory(r.ShareMiB), r.use(), formatSeconds(r.IdleSeconds), r.sampled(o.now),
			formatOptionalMinute(r.LastActive, zone),
		})
	}
	return table
}

func topDeviceTable(rows []topDeviceRow, o *topObservation, zone *time.Location) printer.Table {
	table := printer.Table{Columns: append(
		printer.Columns("NODE", "GPU", "MODEL", "TOTAL", "SHARES", "MEMORY", "USE", "IDLE", "SOURCE", "SAMPLED", "PODS", "OTHERS"),
		printer.Column{Name: "POOL", Wide: true}, printer.Column{Name: "HEALTH", Wide: true},
		printer.Column{Name: "LAST ACTIVE", Wide: true}, printer.Column{Name: "UUID", Wide: true},
	)}
	for i := range rows {
		r := &rows[i]
		table.Rows = append(table.Rows, []string{
			r.Node, r.name(), r.Model, formatMiB(r.TotalMiB), formatMiB(r.ShareMiB), r.memory(r.TotalMiB), r.use(), formatSeconds(r.IdleSeconds),
			joinSources([]v1alpha1.UtilizationSource{r.UtilizationSource}), r.sampled(o.now), joinFirst(r.Pods), r.others(),
			r.NodePool, string(r.Health), formatOptionalMinute(r.LastActive, zone), r.UUID,
		})
	}
	return table
}

// memory returns the used memory, with its part of a total if that is known.
func (f *useFigures) memory(total *int64) string {
	text := formatMiB(f.MemoryMiB)
	if text != "" && total != nil && *total > 0 {
		text += fmt.Sprintf(" (%.0f%%)", 100*float64(*f.MemoryMiB)/float64(*total))
	}
	return text
}

func (f *useFigures) use() string {
	if f.Use == useUnknown {
		return ""
	}
	return strings.ToLower(string(f.Use))
}

// sampled returns the age of the sample.
func (f *useFigures) sampled(now time.Time) string {
	if f.SampledAt == nil {
		return ""
	}
	age := printer.FormatDuration(now.Sub(*f.SampledAt))
	if f.Old {
		age += " (old)"
	}
	return age
}

// formatMiB returns an amount of memory as Kubernetes writes it, rounded to tenths of a GiB; empty if it is unknown.
func formatMiB(mib *int64) string {
	switch {
	case mib == nil:
		return ""
	case *mib < 1024:
		return strconv.FormatInt(*mib, 10) + "Mi"
	}
	return strconv.FormatFloat(float64(*mib)/1024, 'f', 1, 64) + "Gi"
}

// joinSources returns the sources of utilization. GPUs that cannot be measured have none.
func joinSources(sources []v1alpha1.UtilizationSource) string {
	var known []string
	for _, source := range sources {
		if source != "" && source != v1alpha1.UtilizationUnavailable {
			known = append(known, string(source))
		}
	}
	return strings.Join(known, ",")
}

// joinReasons returns the reasons of findings, each once.
func joinReasons(findings []v1alpha1.Finding) string {
	reasons := map[v1alpha1.FindingReason]bool{}
	for _, finding := range findings {
		reasons[finding.Reason] = true
	}
	return joinSorted(reasons)
}

func joinSorted[T ~string](set map[T]bool) string {
	var texts []string
	for _, text := range slices.Sorted(maps.Keys(set)) {
		texts = append(texts, string(text))
	}
	return strings.Join(texts, ",")
}

// joinFirst returns the first names and the number of the others.
func joinFirst(names []string) string {
	const most = 2
	if len(names) <= most {
		return strings.Join(names, ",")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ","), len(names)-most)
}
