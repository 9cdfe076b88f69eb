// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/manifests"
	"sluice.dev/test/clustertest"
)

// watchedProject is the project of the scenario.
const watchedProject = "watched"

// emptyPanels are the panels that have no data in the scenario, with the reason.
var emptyPanels = map[string]string{
	"cluster: Evicted pods":                   "no pod exceeds its share, and none is preempted",
	"project: Memory beyond the share":        "no pod exceeds its share",
	"project: Problems":                       "no project has a problem",
	"admission: Evaluations without a result": "no policy fails",
	"admission: Failed calls":                 "the webhook answers all calls",
	"admission: Failed calls, B":              "the webhook answers all calls",
	"lifecycle: Steps and renewals, B":        "no project is renewed",
	"nodes: Problems":                         "no GPUNode has a problem",
	"nodes: Utilization of MIG devices":       "the driver measures no MIG device of an A100",
	"nodes: Processes outside of pods":        "only pods use the simulated GPUs",
	"nodes: Failed driver calls":              "the simulated driver does not fail",
}

// busyMachineAlerts fire on a test machine that is busy. Their scenarios are in manifests/testdata.
var busyMachineAlerts = map[string]bool{"SluiceWebhookSlow": true, "SluiceAdmissionSlow": true}

// A real Prometheus scrapes the API server and all components. In a scenario with each kind of work, all panels of all
// dashboards have data and no alert fires; each fault then makes its alert fire.
func TestMonitoring(t *testing.T) {
	c := newPolicyTimeCluster(t)
	rules := immediateAlerts(t)
	p := c.startPrometheus(t, rules)
	c.playScenario(t)
	t.Run("rules", func(t *testing.T) { p.assertRulesAreEvaluated(t, rules) })
	t.Run("panels", p.testPanels)
	t.Run("page", p.testMetricsPage)
	t.Run("silence", func(t *testing.T) {
		clustertest.Eventually(t, func() error {
			firing, err := p.firing(t.Context())
			maps.DeleteFunc(firing, func(name string, _ []map[string]string) bool { return busyMachineAlerts[name] })
			if err == nil && len(firing) > 0 {
				err = unexpectedState("no alert fires", firing)
			}
			return err
		})
	})
	t.Run("faults", func(t *testing.T) { c.testFaults(t, p) })
}

// playScenario runs work of each kind: in use, idle, on a MIG slice, over quota, pending, refused, stopped and ended, with mail.
func (c *policyTimeCluster) playScenario(t *testing.T) {
	t.Helper()
	const ns = watchedProject
	quotas := []v1alpha1.PoolQuota{newPoolQuota("dgx", "2", "4"), newPoolQuota("dgx-mig", "1", "1")}
	c.createForTest(t, &v1alpha1.Department{
		ObjectMeta: metav1.ObjectMeta{Name: ns},
		Spec: v1alpha1.DepartmentSpec{
			NodePools: quotas,
			Workloads: map[v1alpha1.WorkloadType]v1alpha1.WorkloadLimits{
				v1alpha1.WorkloadInteractive: {IdleTimeout: ptr.To(period.MustParseDuration("20h")), MaxRuntime: ptr.To(period.MustParseDuration("72h"))},
				v1alpha1.WorkloadTrain:       {MaxRuntime: ptr.To(period.MustParseDuration("10h"))},
			},
		},
	})
	c.createGovernedProject(t, ns, ns, quotas...)
	c.createViolation(t, ns)
	interactive := withWorkloadType(v1alpha1.WorkloadInteractive)
	computing := newPodWorkload(ns, "computing", v1alpha1.ResourceNVIDIAGPU, interactive, withUtilization("60"))
	idle := newPodWorkload(ns, "idle", v1alpha1.ResourceNVIDIAGPU, interactive, withUtilization("0"))
	slice := newPodWorkload(ns, "slice", migDevice, interactive, withUtilization("40"), func(p *corev1.Pod) {
		metav1.SetMetaDataAnnotation(&p.ObjectMeta, v1alpha1.AnnotationNodePools, "dgx-mig")
	})
	training := newJobWorkload(ns, "training", v1alpha1.ResourceNVIDIAGPU, withWorkloadType(v1alpha1.WorkloadTrain))
	ended := newPodWorkload(ns, "ended", v1alpha1.ResourceNVIDIAGPU, withWorkloadType(v1alpha1.WorkloadTrain))
	c.startWorkloads(t, computing, idle, slice, training, ended)
	if err := c.adminClient.Delete(t.Context(), ended.Object); err != nil {
		t.Fatal(err)
	}
	c.eventuallyAfterStep(t, func() error {
		err := c.adminClient.Get(t.Context(), client.ObjectKeyFromObject(ended.Object), ended.Object)
		if !apierrors.IsNotFound(err) {
			return unexpectedState("the pod has ended", err)
		}
		return nil
	})
	// The training is stopped at its time limit, after a mail for each lead.
	for n, lead := range universityLeads[1:] {
		c.advanceTimeTo(t, c.deadline(t, training).Add(-lead))
		c.waitForMails(t, "owner@example.org", n+1)
	}
	c.advanceTimeTo(t, c.deadline(t, training))
	c.assertStopped(t, v1alpha1.EndMaxRuntime, 10*time.Hour, training)
	// A pod beyond the guarantee, a job that requests more than is left, and a pod that no policy accepts.
	c.startWorkloads(t, newPodWorkload(ns, "over-quota", v1alpha1.ResourceNVIDIAGPU, withWorkloadType(v1alpha1.WorkloadTrain), withUtilization("90")))
	pending := newJobWorkload(ns, "pending", v1alpha1.ResourceNVIDIAGPU, withWorkloadType(v1alpha1.WorkloadTrain))
	job := pending.Object.(*batchv1.Job) //nolint:forcetypeassert // newJobWorkload returns a Job
	job.Spec.Template.Spec.Containers[0].Resources.Limits[v1alpha1.ResourceNVIDIAGPU] = resource.MustParse("3")
	c.createForTest(t, job)
	refused := newPodWorkload(ns, "refused", v1alpha1.ResourceNVIDIAGPU, func(p *corev1.Pod) {
		metav1.SetMetaDataAnnotation(&p.ObjectMeta, v1alpha1.AnnotationNodePools, "no-such-pool")
	})
	if err := c.adminClient.Create(t.Context(), refused.Object); !apierrors.IsForbidden(err) {
		t.Fatalf("err = %v, want a refusal", err)
	}
	// The API server refuses a pod outside of projects itself.
	outside := newPodWorkload("default", "outside", v1alpha1.ResourceNVIDIAGPU)
	if err := c.adminClient.Create(t.Context(), outside.Object); !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) {
		t.Fatalf("err = %v, want a refusal by an admission policy", err)
	}
	c.eventuallyAfterStep(t, func() error {
		project := &v1alpha1.Project{ObjectMeta: metav1.ObjectMeta{Name: ns}}
		if err := c.adminClient.Get(t.Context(), client.ObjectKeyFromObject(project), project); err != nil {
			return err
		}
		if project.Status.GPU.Pending.Sign() <= 0 || project.Status.GPU.OverQuota.Sign() <= 0 {
			return unexpectedState("GPUs are pending and over quota", project.Status.GPU)
		}
		return nil
	})
}

// createViolation creates a pod that a new policy in DryRun would deny, and waits for the audit that finds it.
func (c *policyTimeCluster) createViolation(t *testing.T, ns string) {
	t.Helper()
	c.createForTest(t, newPod(ns, "without-owner"))
	policy := &v1alpha1.Policy{ObjectMeta: metav1.ObjectMeta{Name: "owner-label"}, Spec: v1alpha1.PolicySpec{
		Enforcement: v1alpha1.EnforcementDryRun,
		Rego:        "package owner_label\n\ndeny contains \"the pod has no label owner\" if not input.object.metadata.labels.owner\n",
	}}
	c.createForTest(t, policy)
	c.eventuallyAfterStep(t, func() error {
		err := c.adminClient.Get(t.Context(), client.ObjectKeyFromObject(policy), policy)
		if err == nil && policy.Status.EnforcedGeneration != policy.Generation {
			err = unexpectedState("the policy is in force", policy.Status)
		}
		return err
	})
	c.waitForAudit(t, time.Time{})
}

// grafanaPanel is a panel in a dashboard's file.
type grafanaPanel struct {
	Title, Type string
	Targets     []struct{ RefID, Expr, LegendFormat string }
}

// grafanaVariable is a variable in a dashboard's file.
type grafanaVariable struct{ Name, Type, Definition string }

// readDashboards returns the panels and variables of the ConfigMaps, by the name of the dashboard.
func readDashboards(t *testing.T) (panels map[string][]grafanaPanel, variables map[string][]grafanaVariable) {
	t.Helper()
	objects, err := manifests.Build(manifests.Dashboards)
	if err != nil {
		t.Fatal(err)
	}
	panels, variables = map[string][]grafanaPanel{}, map[string][]grafanaVariable{}
	for _, object := range objects {
		data, _, err := unstructured.NestedStringMap(object.Object, "data")
		if err != nil {
			t.Fatal(err)
		}
		for file, text := range data {
			var dashboard struct {
				Panels     []grafanaPanel
				Templating struct{ List []grafanaVariable }
			}
			if err := json.Unmarshal([]byte(text), &dashboard); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			name := strings.TrimSuffix(file, ".json")
			panels[name], variables[name] = dashboard.Panels, dashboard.Templating.List
		}
	}
	return panels, variables
}

// asGrafana replaces the variables of Grafana as it does itself, with all values selected.
var asGrafana = strings.NewReplacer(
	"$__rate_interval", "30s", "$__range_s", "600", "$__range", "10m", "$__interval", "5s",
	"$department", ".*", "$project", ".*", "$pool", ".*", "$node", ".*", "$webhook", ".*",
)

var (
	legendLabel = regexp.MustCompile(`{{(\w+)}}`)
	labelValues = regexp.MustCompile(`^label_values\((.+), (\w+)\)$`)
)

// testPanels shows that each query of each panel has numbers, with the labels of its legend, and each variable values.
func (p *prometheus) testPanels(t *testing.T) {
	panels, variables := readDashboards(t)
	unused := maps.Clone(emptyPanels)
	for _, name := range slices.Sorted(maps.Keys(panels)) {
		for _, panel := range panels[name] {
			for _, target := range panel.Targets {
				at := name + ": " + panel.Title
				if target.RefID != "A" {
					at += ", " + target.RefID
				}
				delete(unused, at)
				if reason := emptyPanels[at]; reason != "" {
					if found, err := p.queryRange(t.Context(), asGrafana.Replace(target.Expr)); err != nil {
						t.Errorf("%s: %v", at, err)
					} else if countNumbers(found) > 0 {
						t.Errorf("%s has data, although %s", at, reason)
					}
					continue
				}
				if err := p.waitForTarget(t, at, panel.Type, target.Expr, target.LegendFormat); err != nil {
					t.Error(err)
				}
			}
		}
		for _, v := range variables[name] {
			match := labelValues.FindStringSubmatch(asGrafana.Replace(v.Definition))
			if v.Type != "query" {
				continue
			}
			if match == nil {
				t.Errorf("%s: variable %s is %q", name, v.Name, v.Definition)
				continue
			}
			found, err := p.query(t.Context(), match[1])
			if err != nil || !slices.ContainsFunc(found, func(s series) bool { return s.Metric[match[2]] != "" }) {
				t.Errorf("%s: variable %s has no values: %v", name, v.Name, err)
			}
		}
	}
	for at := range unused {
		t.Errorf("emptyPanels names %q, which does not exist", at)
	}
}

// targetTimeout bounds the time until a query has data. All of the scenario has happened, so that only the next scrapes and the
// next report of the agents are missing. On a busy machine, some scrapes fail.
const targetTimeout = 2 * time.Minute

// waitForTarget waits until a query has data, and returns what is wrong with it. One empty panel does not hide the others.
func (p *prometheus) waitForTarget(t *testing.T, at, kind, expr, legend string) error {
	t.Helper()
	ticker := time.NewTicker(scrapeInterval)
	defer ticker.Stop()
	for deadline := time.Now().Add(targetTimeout); ; <-ticker.C {
		err := p.checkTarget(t, at, kind, expr, legend)
		if err == nil || time.Now().After(deadline) {
			return err
		}
	}
}

// checkTarget returns an error if a query has no numbers, or no labels for its legend.
func (p *prometheus) checkTarget(t *testing.T, at, kind, expr, legend string) error {
	evaluate := p.query
	if kind == "timeseries" {
		evaluate = p.queryRange
	}
	found, err := evaluate(t.Context(), asGrafana.Replace(expr))
	if err != nil {
		return fmt.Errorf("%s: %w", at, err)
	}
	if countNumbers(found) == 0 {
		return fmt.Errorf("%s has no data: %s", at, expr)
	}
	for _, match := range legendLabel.FindAllStringSubmatch(legend, -1) {
		for _, s := range found {
			if s.Metric[match[1]] == "" {
				return fmt.Errorf("%s: a series has no label %s: %v", at, match[1], s.Metric)
			}
		}
	}
	return nil
}

func countNumbers(found []series) (n int) {
	for i := range found {
		n += len(found[i].numbers())
	}
	return n
}

// testMetricsPage shows that the page of the metrics describes each metric of Sluice that Prometheus has.
func (p *prometheus) testMetricsPage(t *testing.T) {
	root, err := clustertest.Root()
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(root, "docs", "platform", "metrics.md"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	if err := p.get(t.Context(), "/api/v1/label/__name__/values", nil, &names); err != nil {
		t.Fatal(err)
	}
	described := 0
	for _, name := range names {
		if !strings.HasPrefix(name, "sluice_") {
			continue
		}
		base := name
		for _, suffix := range []string{"_bucket", "_count", "_sum"} {
			base = strings.TrimSuffix(base, suffix)
		}
		if !strings.Contains(string(page), "| `"+base+"` |") && !strings.Contains(string(page), "| `"+name+"` |") {
			t.Errorf("docs/platform/metrics.md does not describe %s", name)
		}
		described++
	}
	if described < 50 {
		t.Errorf("Prometheus has %d metrics of Sluice: %v", described, names)
	}
}

// testFaults breaks one part after the other, and waits for the alert.
func (c *policyTimeCluster) testFaults(t *testing.T, p *prometheus) {
	waitFor := func(alert string, labels map[string]string) {
		t.Helper()
		c.eventuallyAfterStep(t, func() error {
			firing, err := p.firing(t.Context())
			if err != nil {
				return err
			}
			for _, found := range firing[alert] {
				matches := true
				for name, value := range labels {
					matches = matches && found[name] == value
				}
				if matches {
					return nil
				}
			}
			return unexpectedState(fmt.Sprintf("%s fires with %v", alert, labels), firing)
		})
	}
	// The agent's alert needs three minutes, in which the others fire.
	c.mustKubectl(t, "patch", "daemonset/gpuagent", "--namespace", "sluice-agent", "--type", "merge",
		"--patch", `{"spec":{"template":{"spec":{"nodeSelector":{"sluice.dev/no-agent":"true"}}}}}`)
	// The mail server refuses this address.
	test := exec.CommandContext(t.Context(), c.binary, "notices", "test", "gone@nowhere.invalid", "--dir", c.dir)
	if out, err := test.CombinedOutput(); err == nil {
		t.Errorf("a mail to an address that cannot exist was sent:\n%s", out)
	}
	waitFor("SluiceNoticesFailed", map[string]string{"kind": string(v1alpha1.NoticeTest)})

	c.mustKubectl(t, "scale", "deployment/webhook", "--namespace", v1alpha1.SystemNamespace, "--replicas", "0")
	broken := &v1alpha1.Policy{ObjectMeta: metav1.ObjectMeta{Name: "broken"}, Spec: v1alpha1.PolicySpec{
		Rego: "package broken\n\ndeny contains \"broken\" if input.objekt\n", Match: v1alpha1.PolicyMatch{Projects: []string{"elsewhere"}},
		Enforcement: v1alpha1.EnforcementDeny,
	}}
	c.eventuallyAfterStep(t, func() error { return client.IgnoreAlreadyExists(c.adminClient.Create(t.Context(), broken)) })
	waitFor("SluicePolicyBroken", map[string]string{"policy": "broken", "problem": "NotCompiled"})
	waitFor("SluiceWebhookDown", nil)
	waitFor("SluiceWebhookReplicaDown", nil)
	// The rate of failures needs two of them.
	c.eventuallyAfterStep(t, func() error {
		pod := newPodWorkload(watchedProject, "unanswered", v1alpha1.ResourceNVIDIAGPU)
		if err := c.adminClient.Create(t.Context(), pod.Object, client.DryRunAll); err == nil {
			return errors.New("a pod was admitted without the webhook")
		}
		firing, err := p.firing(t.Context())
		if err == nil && len(firing["SluiceWebhookFailing"]) == 0 {
			err = unexpectedState("SluiceWebhookFailing fires", firing)
		}
		return err
	})
	waitFor("SluiceAgentStale", map[string]string{"node": "dgx-1", "pool": "dgx"})
	c.mustKubectl(t, "scale", "deployment/lifecycle", "--namespace", v1alpha1.SystemNamespace, "--replicas", "0")
	waitFor("SluiceLifecycleNoLeader", nil)
}

// immediateAlerts returns the alerts of the manifests without the times for which their conditions must last: the scenarios of
// promtool test these.
func immediateAlerts(t *testing.T) map[string]any {
	t.Helper()
	objects, err := manifests.Build(manifests.Monitoring)
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range objects {
		if object.GetKind() != "PrometheusRule" {
			continue
		}
		spec, ok := object.Object["spec"].(map[string]any)
		if !ok {
			break
		}
		for _, group := range spec["groups"].([]any) {
			for _, rule := range group.(map[string]any)["rules"].([]any) {
				delete(rule.(map[string]any), "for")
			}
		}
		return spec
	}
	t.Fatal("the manifests have no alerts")
	return nil
}

// assertRulesAreEvaluated waits until Prometheus has evaluated each alert without an error.
func (p *prometheus) assertRulesAreEvaluated(t *testing.T, rules map[string]any) {
	t.Helper()
	want := 0
	for _, group := range rules["groups"].([]any) {
		want += len(group.(map[string]any)["rules"].([]any))
	}
	clustertest.Eventually(t, func() error {
		var data struct {
			Groups []struct {
				Rules []struct{ Name, Health, LastError string }
			}
		}
		if err := p.get(t.Context(), "/api/v1/rules", nil, &data); err != nil {
			return err
		}
		evaluated := 0
		for _, group := range data.Groups {
			for _, rule := range group.Rules {
				if rule.Health != "ok" {
					return fmt.Errorf("%s is %s: %s", rule.Name, rule.Health, rule.LastError)
				}
				evaluated++
			}
		}
		if evaluated != want {
			return unexpectedState(fmt.Sprintf("%d rules are evaluated", want), evaluated)
		}
		return nil
	})
}
