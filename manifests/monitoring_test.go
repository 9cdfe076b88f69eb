// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package manifests_test

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/manifests"
	"sluice.dev/test/clustertest"
)

// ruleFile is a rule file of Prometheus, and the spec of a PrometheusRule.
type ruleFile struct {
	Groups []ruleGroup `json:"groups"`
}

type ruleGroup struct {
	Name  string `json:"name"`
	Rules []rule `json:"rules"`
}

type rule struct {
	Alert       string            `json:"alert,omitempty"`
	Record      string            `json:"record,omitempty"`
	Expr        string            `json:"expr"`
	For         string            `json:"for,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// readAlerts returns the alerts in the manifests.
func readAlerts(t *testing.T) ruleFile {
	t.Helper()
	objects, err := manifests.Build(manifests.Monitoring)
	if err != nil {
		t.Fatal(err)
	}
	var object struct {
		APIVersion string         `json:"apiVersion"`
		Kind       string         `json:"kind"`
		Metadata   map[string]any `json:"metadata"`
		Spec       ruleFile       `json:"spec"`
	}
	findObject(t, objects, "PrometheusRule", "sluice", &object)
	return object.Spec
}

// promtool runs Prometheus' own tool on files, and returns its output.
func promtool(t *testing.T, args ...string) {
	t.Helper()
	programs, err := clustertest.Programs(t.Context(), "promtool")
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), programs["promtool"], args...).CombinedOutput(); err != nil {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

func writeYAML(t *testing.T, path string, content any) {
	t.Helper()
	raw, err := yaml.Marshal(content)
	if err == nil {
		err = os.WriteFile(path, raw, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// checkPromQL parses queries of dashboards, by where they are, with the parser of Prometheus: as recording rules.
func checkPromQL(t *testing.T, queries map[string]string) {
	t.Helper()
	macros := strings.NewReplacer("$__rate_interval", "5m", "$__range_s", "3600", "$__range", "1h", "$__interval", "1m")
	var rules []rule
	for i, at := range slices.Sorted(maps.Keys(queries)) {
		rules = append(rules, rule{Record: fmt.Sprintf("panel:%d", i), Expr: macros.Replace(queries[at]), Labels: map[string]string{"panel": at}})
	}
	path := filepath.Join(t.TempDir(), "queries.yaml")
	writeYAML(t, path, ruleFile{[]ruleGroup{{"dashboards", rules}}})
	promtool(t, "check", "rules", path)
}

// The alerts fire in their scenarios and are silent when all is well; testdata/alerts.yaml has a scenario for each.
func TestAlerts(t *testing.T) {
	alerts := readAlerts(t)
	dir := t.TempDir()
	writeYAML(t, filepath.Join(dir, "alerts.yaml"), alerts)
	promtool(t, "check", "rules", filepath.Join(dir, "alerts.yaml")) // the templates of the annotations too
	scenarios, err := os.ReadFile(filepath.Join("testdata", "alerts.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Tests []struct {
			Name          string `json:"name"`
			AlertRuleTest []struct {
				Alertname string           `json:"alertname"`
				ExpAlerts []map[string]any `json:"exp_alerts"`
			} `json:"alert_rule_test"`
		} `json:"tests"`
	}
	if err := yaml.Unmarshal(scenarios, &file); err != nil {
		t.Fatal(err)
	}
	fires, silent := map[string]bool{}, map[string]bool{}
	for _, scenario := range file.Tests {
		for _, expected := range scenario.AlertRuleTest {
			if len(expected.ExpAlerts) > 0 {
				fires[expected.Alertname] = true
			} else {
				silent[expected.Alertname] = true
			}
		}
	}
	for _, group := range alerts.Groups {
		for _, r := range group.Rules {
			if !fires[r.Alert] || !silent[r.Alert] {
				t.Errorf("%s fires in a scenario: %v, is silent in one: %v", r.Alert, fires[r.Alert], silent[r.Alert])
			}
		}
	}
	// The scenarios compare labels only.
	for _, group := range alerts.Groups {
		for i := range group.Rules {
			group.Rules[i].Annotations = nil
		}
	}
	writeYAML(t, filepath.Join(dir, "alerts.yaml"), alerts)
	// The file of the scenarios names alerts.yaml, which lies beside it here.
	if err := os.WriteFile(filepath.Join(dir, "scenarios.yaml"), scenarios, 0o600); err != nil {
		t.Fatal(err)
	}
	promtool(t, "test", "rules", filepath.Join(dir, "scenarios.yaml"))
}

// Each alert says how severe it is, what happened, and what to do, and has a runbook.
func TestAlertsHaveRunbooks(t *testing.T) {
	const page = "../docs/platform/operations.md"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	var runbooks []string
	for _, match := range regexp.MustCompile(`(?m)^### (Sluice\w+)$`).FindAllStringSubmatch(string(text), -1) {
		runbooks = append(runbooks, match[1])
	}
	var names []string
	for _, group := range readAlerts(t).Groups {
		for _, r := range group.Rules {
			names = append(names, r.Alert)
			if severity := r.Labels["severity"]; severity != "critical" && severity != "warning" {
				t.Errorf("%s has the severity %q", r.Alert, severity)
			}
			if r.Annotations["summary"] == "" || r.Annotations["description"] == "" {
				t.Errorf("%s has no summary or description", r.Alert)
			}
			if url := r.Annotations["runbook_url"]; !strings.HasSuffix(url, "/docs/platform/operations.md#"+strings.ToLower(r.Alert)) {
				t.Errorf("%s has the runbook %s", r.Alert, url)
			}
		}
	}
	slices.Sort(names)
	slices.Sort(runbooks)
	if !slices.Equal(names, runbooks) {
		t.Errorf("%s has runbooks for %v, and the alerts are %v", page, runbooks, names)
	}
}

// metricName matches Sluice's metrics in a query.
var metricName = regexp.MustCompile(`\bsluice_[a-z0-9_]+`)

// Alerts and dashboards use metrics that docs/platform/metrics.md describes.
func TestQueriesUseDescribedMetrics(t *testing.T) {
	page, err := os.ReadFile("../docs/platform/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	described := map[string]bool{}
	for _, match := range regexp.MustCompile("(?m)^\\| `(sluice_[a-z0-9_]+)` \\|").FindAllStringSubmatch(string(page), -1) {
		described[match[1]] = true
	}
	check := func(at, expr string) {
		for _, name := range metricName.FindAllString(expr, -1) {
			base := name
			for _, suffix := range []string{"_bucket", "_count", "_sum"} {
				if !described[name] {
					base = strings.TrimSuffix(base, suffix)
				}
			}
			if !described[base] {
				t.Errorf("%s uses %s, which docs/platform/metrics.md does not describe", at, name)
			}
		}
	}
	for _, group := range readAlerts(t).Groups {
		for _, r := range group.Rules {
			check(r.Alert, r.Expr)
		}
	}
	for _, d := range newDashboards() {
		for _, r := range d.rows {
			for _, p := range r.panels {
				for _, q := range p.queries {
					check(d.name+": "+p.title, q.expr)
				}
			}
		}
		for _, v := range d.variables {
			check(d.name+": variable "+v.name, v.query)
		}
	}
}

// serviceMonitor has the fields of a ServiceMonitor that Sluice sets.
type serviceMonitor struct {
	APIVersion string         `json:"apiVersion"`
	Kind       string         `json:"kind"`
	Metadata   map[string]any `json:"metadata"`
	Spec       struct {
		JobLabel string `json:"jobLabel"`
		Selector struct {
			MatchLabels map[string]string `json:"matchLabels"`
		} `json:"selector"`
		Endpoints []struct {
			Port            string          `json:"port"`
			Scheme          string          `json:"scheme"`
			BearerTokenFile string          `json:"bearerTokenFile"`
			TLSConfig       map[string]bool `json:"tlsConfig"`
			Relabelings     []struct {
				SourceLabels []string `json:"sourceLabels"`
				TargetLabel  string   `json:"targetLabel"`
			} `json:"relabelings"`
		} `json:"endpoints"`
	} `json:"spec"`
}

// jobSelector matches the job in a query.
var jobSelector = regexp.MustCompile(`job="([a-z-]+)"`)

// The scrape targets have the jobs that alerts and dashboards select, and the agents' series the name of their node.
func TestScrapeTargets(t *testing.T) {
	objects, err := manifests.Build(manifests.Monitoring)
	if err != nil {
		t.Fatal(err)
	}
	jobs := map[string]bool{}
	for _, object := range objects {
		if object.GetKind() != "ServiceMonitor" {
			continue
		}
		var m serviceMonitor
		findObject(t, objects, "ServiceMonitor", object.GetName(), &m)
		job := m.Spec.Selector.MatchLabels[m.Spec.JobLabel]
		jobs[job] = true
		if job != object.GetName() || len(m.Spec.Endpoints) != 1 {
			t.Fatalf("%s has the job %q and %d endpoints", object.GetName(), job, len(m.Spec.Endpoints))
		}
		endpoint := m.Spec.Endpoints[0]
		if endpoint.Port != "metrics" || endpoint.Scheme != "https" || endpoint.BearerTokenFile == "" || !endpoint.TLSConfig["insecureSkipVerify"] {
			t.Errorf("%s scrapes %+v", object.GetName(), endpoint)
		}
		wantNamespace := v1alpha1.SystemNamespace
		if job == "sluice-gpuagent" {
			wantNamespace = "sluice-agent"
			if len(endpoint.Relabelings) != 1 || endpoint.Relabelings[0].TargetLabel != "node" {
				t.Errorf("the agents' series have no label node: %+v", endpoint.Relabelings)
			}
		}
		if object.GetNamespace() != wantNamespace {
			t.Errorf("%s is in namespace %s, and its Services in %s", object.GetName(), object.GetNamespace(), wantNamespace)
		}
	}
	used := map[string]bool{}
	find := func(expr string) {
		for _, match := range jobSelector.FindAllStringSubmatch(expr, -1) {
			used[match[1]] = true
		}
	}
	for _, group := range readAlerts(t).Groups {
		for _, r := range group.Rules {
			find(r.Expr)
		}
	}
	for _, d := range newDashboards() {
		for _, r := range d.rows {
			for _, p := range r.panels {
				for _, q := range p.queries {
					find(q.expr)
				}
			}
		}
	}
	if !maps.Equal(used, jobs) {
		t.Errorf("alerts and dashboards select the jobs %v, and the targets have %v", used, jobs)
	}
}
