// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package manifests_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"sluice.dev/manifests"
)

// dashboard describes a dashboard of Grafana. newDashboards returns all of them.
type dashboard struct {
	name, title, description string
	variables                []variable
	rows                     []row
}

// variable is a choice above the panels: the values of a label.
type variable struct{ name, title, query string }

type row struct {
	title  string
	panels []panel
}

// panel is one diagram. Its width is in 24ths of the screen.
type panel struct {
	title, description string
	kind, unit         string
	width              int
	queries            []query
}

// query is an expression with the legend of its series.
type query struct{ expr, legend string }

// The kinds of panels.
const (
	graph = "timeseries"
	stat  = "stat"
	table = "table"
)

// The units of Grafana.
const (
	unitNone     = "short"
	unitGPUs     = "GPUs"
	unitGPUHours = "GPU h"
	unitSeconds  = "s"
	unitDuration = "dtdurations"
	unitPercent  = "percentunit"
	unitBytes    = "bytes"
	unitRate     = "reqps"
	unitTime     = "dateTimeFromNow"
	unitBool     = "bool_yes_no"
)

var units = []string{
	unitNone, unitGPUs, unitGPUHours, unitSeconds, unitDuration, unitPercent, unitBytes, unitRate, unitTime, unitBool,
}

var update = flag.Bool("update", false, "write the dashboards")

// TestGeneratedDashboards compares the files of the dashboards with their description; -update writes them.
func TestGeneratedDashboards(t *testing.T) {
	var names []string
	for _, d := range newDashboards() {
		raw, err := json.MarshalIndent(d.toGrafana(), "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		raw = append(raw, '\n')
		path := filepath.Join("dashboards", d.name+".json")
		names = append(names, d.name+".json")
		if *update {
			if err := os.WriteFile(path, raw, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, raw) {
			t.Errorf("%s is not as described (%v): run go test ./manifests -run '^TestGenerated' -update", path, err)
		}
	}
	objects, err := manifests.Build(manifests.Dashboards)
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range objects {
		var c corev1.ConfigMap
		findObject(t, objects, "ConfigMap", object.GetName(), &c)
		if c.Labels["grafana_dashboard"] != "1" || c.Annotations["grafana_folder"] != "Sluice" {
			t.Errorf("Grafana does not find %s: %v %v", c.Name, c.Labels, c.Annotations)
		}
		for name := range c.Data {
			at := slices.Index(names, name)
			if at < 0 {
				t.Fatalf("%s has %s, which is no dashboard", c.Name, name)
			}
			names = slices.Delete(names, at, at+1)
		}
	}
	if len(names) > 0 {
		t.Errorf("no ConfigMap has %v", names)
	}
}

// Each panel has a title, a description, a known unit and legends that tell its series
// apart, and each identifier is unique.
func TestDashboardsAreReadable(t *testing.T) {
	uids, promQL := map[string]bool{}, map[string]string{}
	for _, d := range newDashboards() {
		if d.title == "" || d.description == "" || uids[d.name] {
			t.Errorf("dashboard %q has no title or description, or its name twice", d.name)
		}
		uids[d.name] = true
		titles := map[string]bool{}
		for _, r := range d.rows {
			for _, p := range r.panels {
				at := d.name + ": " + p.title
				if p.title == "" || titles[p.title] {
					t.Errorf("%s: the title is empty or there twice", at)
				}
				titles[p.title] = true
				if len(p.description) < 20 || !strings.HasSuffix(p.description, ".") {
					t.Errorf("%s: the description %q is no sentence", at, p.description)
				}
				if !slices.Contains(units, p.unit) || p.width < 4 || p.width > 24 {
					t.Errorf("%s: unit %q, width %d", at, p.unit, p.width)
				}
				for i, q := range p.queries {
					promQL[at+" "+string(rune('A'+i))] = q.expr
					if p.kind == graph && q.legend == "" {
						t.Errorf("%s: a series without a legend", at)
					}
					for _, label := range legendLabels(q.legend) {
						if strings.Contains(q.expr, " by (") && !strings.Contains(q.expr, label) {
							t.Errorf("%s: the legend %s has a label that the query drops", at, q.legend)
						}
					}
				}
			}
		}
	}
	checkPromQL(t, promQL)
}

// legendLabels returns the labels in a legend, such as {{policy}}.
func legendLabels(legend string) (labels []string) {
	for _, part := range strings.Split(legend, "{{")[1:] {
		label, _, _ := strings.Cut(part, "}}")
		labels = append(labels, label)
	}
	return labels
}

// toGrafana returns the dashboard in Grafana's format.
func (d *dashboard) toGrafana() map[string]any {
	variables := []any{map[string]any{
		"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus", "refresh": 1, "hide": 0,
	}}
	for _, v := range d.variables {
		variables = append(variables, map[string]any{
			"name": v.name, "label": v.title, "type": "query", "datasource": dataSource(), "refresh": 2, "sort": 1,
			"query": map[string]any{"query": v.query, "refId": v.name}, "definition": v.query,
			"includeAll": true, "multi": true, "allValue": ".*", "current": map[string]any{"text": "All", "value": "$__all"},
		})
	}
	var panels []any
	id, y := 0, 0
	for _, r := range d.rows {
		id++
		panels = append(panels, map[string]any{
			"id": id, "type": "row", "title": r.title, "collapsed": false, "panels": []any{},
			"gridPos": map[string]any{"x": 0, "y": y, "w": 24, "h": 1},
		})
		y++
		x, height := 0, 0
		for i := range r.panels {
			p := &r.panels[i]
			if x+p.width > 24 {
				x, y, height = 0, y+height, 0
			}
			id++
			panels = append(panels, p.toGrafana(id, x, y))
			x, height = x+p.width, max(height, p.height())
		}
		y += height
	}
	return map[string]any{
		"uid": "sluice-" + d.name, "title": d.title, "description": d.description, "tags": []string{"sluice"},
		"schemaVersion": 39, "version": 1, "editable": true, "graphTooltip": 1, "refresh": "1m",
		"time":       map[string]any{"from": "now-24h", "to": "now"},
		"templating": map[string]any{"list": variables},
		"links": []any{map[string]any{
			"title": "Sluice", "type": "dashboards", "tags": []string{"sluice"}, "asDropdown": true, "includeVars": true, "keepTime": true,
		}},
		"panels": panels,
	}
}

func dataSource() map[string]any { return map[string]any{"type": "prometheus", "uid": "${datasource}"} }

func (p *panel) height() int {
	if p.kind == stat {
		return 4
	}
	return 8
}

func (p *panel) toGrafana(id, x, y int) map[string]any {
	var targets []any
	for i, q := range p.queries {
		legend := q.legend
		if legend == "" {
			legend = "__auto"
		}
		targets = append(targets, map[string]any{
			"refId": string(rune('A' + i)), "datasource": dataSource(), "expr": q.expr, "legendFormat": legend,
			"instant": p.kind != graph, "range": p.kind == graph, "format": map[bool]string{true: "table", false: "time_series"}[p.kind == table],
		})
	}
	defaults := map[string]any{"unit": p.grafanaUnit()}
	if p.unit == unitPercent || p.unit == unitBytes || p.unit == unitRate {
		defaults["min"] = 0
	}
	options := map[string]any{}
	switch p.kind {
	case graph:
		defaults["custom"] = map[string]any{"fillOpacity": 10, "lineWidth": 1, "showPoints": "never", "spanNulls": false}
		options["legend"] = map[string]any{"displayMode": "table", "placement": "bottom", "calcs": []string{"lastNotNull", "max"}, "showLegend": true}
		options["tooltip"] = map[string]any{"mode": "multi", "sort": "desc"}
	case stat:
		options["reduceOptions"] = map[string]any{"calcs": []string{"lastNotNull"}, "fields": "", "values": false}
		options["graphMode"], options["colorMode"] = "area", "none"
	case table:
		options["showHeader"] = true
	}
	result := map[string]any{
		"id": id, "type": p.kind, "title": p.title, "description": p.description, "datasource": dataSource(), "targets": targets,
		"gridPos":     map[string]any{"x": x, "y": y, "w": p.width, "h": p.height()},
		"fieldConfig": map[string]any{"defaults": defaults, "overrides": []any{}}, "options": options,
	}
	if p.kind == table {
		// One row for each series: the labels are columns, and the time of the query is none.
		result["transformations"] = []any{map[string]any{"id": "organize", "options": map[string]any{"excludeByName": map[string]bool{"Time": true}}}}
	}
	return result
}

// grafanaUnit returns the unit as Grafana names it: its own, or a suffix.
func (p *panel) grafanaUnit() string {
	if p.unit == unitGPUs || p.unit == unitGPUHours {
		return "suffix: " + p.unit
	}
	return p.unit
}
