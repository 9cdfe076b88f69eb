// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"errors"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workloadkind"
	"sluice.dev/lifecycle/notification/outbox"
)

func TestHealthyClusterHasNoFindings(t *testing.T) {
	report := Diagnose(newHealthy(t))
	for _, c := range report.Checks {
		if c.Result != OK && c.Name != "policy-matches" || c.Message == "" {
			t.Errorf("%s: %s %q\n%s", c.Name, c.Result, c.Message, allFindings(c))
		}
	}
	if report.Summary != (Summary{OK: len(checks) - 1, Skipped: 1}) {
		t.Errorf("summary %+v", report.Summary)
	}
}

// Each problem yields a finding in its check, with what to do, and in no other check.
func TestChecksFindProblems(t *testing.T) {
	addCondition := func(conditions *[]metav1.Condition, kind string, status metav1.ConditionStatus, reason string) {
		*conditions = append(*conditions, metav1.Condition{Type: kind, Status: status, Reason: reason, Message: "\x1b[2Jhostile"})
	}
	tests := map[string]struct {
		change func(*Observation)
		check  string
		want   string
		also   []string // further checks with a finding
	}{
		"old Kubernetes":           {func(o *Observation) { o.Kubernetes.Value = "v1.31.9" }, "kubernetes-version", "Error : Kubernetes v1.31.9 is older", nil},
		"new Kubernetes":           {func(o *Observation) { o.Kubernetes.Value = "v1.37.0-alpha.1" }, "kubernetes-version", "Warning : Kubernetes v1.37.0-alpha.1 is newer", nil},
		"hostile version":          {func(o *Observation) { o.Kubernetes.Value = "v1." + strings.Repeat("9", 100) }, "kubernetes-version", "Warning : the API server reports", nil},
		"a missing API":            {func(o *Observation) { delete(o.Resources.Value, "policy/v1/poddisruptionbudgets") }, "kubernetes-apis", "Error : the API server does not serve policy/v1", nil},
		"a missing CRD":            {func(o *Observation) { o.CRDs.Value = o.CRDs.Value[1:] }, "custom-resource-definitions", "admissionparameters.sluice.dev: it does not exist", nil},
		"a CRD not served":         {func(o *Observation) { o.CRDs.Value[0].Status.Conditions = nil }, "custom-resource-definitions", "Established is not True", nil},
		"a CRD of no schema":       {func(o *Observation) { o.CRDs.Value[0].Spec.Versions[0].Schema = nil }, "custom-resource-definitions", "has no schema", nil},
		"a CRD of another version": {func(o *Observation) { o.CRDs.Value[0].Spec.Versions[0].Name = "v9" }, "custom-resource-definitions", "version v1alpha1 is not served", nil},
		"a further field": {func(o *Observation) {
			o.CRDs.Value[0].Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["novel"] = apiextensionsv1.JSONSchemaProps{Type: "string"}
		}, "custom-resource-definitions", "that this version does not know, as those of a newer Sluice: novel", nil},
		"skew of two minor versions": {func(o *Observation) { o.CLIVersion = "v0.5.1" }, "versions", "Error : Deployment sluice-system/webhook has version v0.3.0, this command has v0.5.1", nil},
		"another major version":      {func(o *Observation) { o.CLIVersion = "v1.3.0" }, "versions", "more than one minor version apart", nil},
		"versions of commits":        {func(o *Observation) { o.CLIVersion = "8e4f780b" }, "versions", "Warning : Deployment sluice-system/webhook has version v0.3.0, this command has 8e4f780b; the two cannot be compared", nil},
		"an image": {func(o *Observation) {
			o.DaemonSets.Value = []appsv1.DaemonSet{{ObjectMeta: metav1.ObjectMeta{Namespace: agentNamespace, Name: agentName}}}
			o.DaemonSets.Value[0].Spec.Template.Spec.Containers = []corev1.Container{{Image: "registry:5000/sluice-gpuagent:v0.1.0@sha256:abc"}}
		}, "versions", "DaemonSet sluice-agent/gpuagent has version v0.1.0", nil},
		"no leader": {func(o *Observation) {
			o.Leases.Value[0].Spec.RenewTime.Time = testNow.Add(-5 * time.Minute)
		}, "lifecycle", "Error Lease sluice-system/sluice-lifecycle: no replica of lifecycle has renewed it for 5m0s", nil},
		"a Lease without a time": {func(o *Observation) { o.Leases.Value[0].Spec = coordinationv1.LeaseSpec{} }, "lifecycle", "no replica of lifecycle holds it", nil},
		"a released Lease":       {func(o *Observation) { o.Leases.Value[0].Spec.HolderIdentity = ptr.To("") }, "lifecycle", "Error Lease sluice-system/sluice-lifecycle: no replica of lifecycle holds it", nil},
		"no Deployments":         {func(o *Observation) { o.Embedded, o.Deployments.Value = false, nil }, "lifecycle", "Error Deployment sluice-system/lifecycle: it does not exist", []string{"webhook-replicas"}},
		"the webhook is away": {func(o *Observation) {
			o.WebhookProbe.Err = errors.New(`Internal error occurred: failed calling webhook "projects.sluice.dev": x509`)
		}, "webhook-reachable", "Error : the API server cannot call the webhook (after 12ms)", nil},
		"no webhook is called": {func(o *Observation) { o.WebhookProbe.Err = nil }, "webhook-reachable", "Error : no webhook answered", nil},
		"a slow webhook":       {func(o *Observation) { o.WebhookProbe.Latency = 2 * time.Second }, "webhook-reachable", "Warning : the webhook answered through the API server after 2s", nil},
		"a missing webhook":    {func(o *Observation) { o.Validating.Value.Webhooks = o.Validating.Value.Webhooks[1:] }, "webhook-configurations", "webhook projects.sluice.dev is missing", nil},
		"no configuration":     {func(o *Observation) { o.Mutating.Value = nil }, "webhook-configurations", "Error MutatingWebhookConfiguration sluice: webhook", nil},
		"it fails open":        {func(o *Observation) { setFailurePolicy(o, "pods.sluice.dev", admissionv1.Ignore) }, "webhook-configurations", "webhook pods.sluice.dev was changed in failurePolicy", nil},
		"other rules":          {func(o *Observation) { o.Validating.Value.Webhooks[0].Rules[0].Resources = []string{"departments"} }, "webhook-configurations", "webhook projects.sluice.dev has other rules", nil},
		"an added kind without rules": {func(o *Observation) {
			o.Parameters.Value.Spec.PodTemplates = []v1alpha1.PodTemplates{{Kind: "Trainer.example.org", Resource: "trainers", Paths: []string{"spec.template"}}}
		}, "webhook-configurations", "webhook added-templates.sluice.dev has other rules than as shipped", nil},
		"rules of a removed kind": {func(o *Observation) {
			setRules(o, workloadkind.AddedRules([]v1alpha1.PodTemplates{{Kind: "Trainer.example.org", Resource: "trainers", Paths: []string{"spec.template"}}}))
		}, "webhook-configurations", "webhook added-templates.sluice.dev has other rules than as shipped", nil},
		"another path": {func(o *Observation) { o.Validating.Value.Webhooks[0].ClientConfig.Service.Path = ptr.To("/") }, "webhook-configurations", "calls sluice-system/webhook:443/, and sluice-system/webhook:443/validate/projects as shipped", nil},
		"another host": {func(o *Observation) {
			client := &o.Mutating.Value.Webhooks[0].ClientConfig
			client.URL, client.Service = ptr.To("https://evil.example/x"), nil
		}, "webhook-configurations", "Error MutatingWebhookConfiguration sluice: webhook forged-decisions.sluice.dev sends objects to https://evil.example/x, and to the Service sluice-system/webhook:443/mutate/forged-decisions as shipped", nil},
		"other conditions": {func(o *Observation) {
			o.Validating.Value.Webhooks[0].MatchConditions = []admissionv1.MatchCondition{{Name: "never", Expression: "false"}}
		}, "webhook-configurations", "Error ValidatingWebhookConfiguration sluice: webhook projects.sluice.dev was changed in matchConditions", nil},
		"another timeout": {func(o *Observation) { o.Validating.Value.Webhooks[0].TimeoutSeconds = ptr.To(int32(30)) }, "webhook-configurations", "was changed in timeoutSeconds", nil},
		"a further webhook": {func(o *Observation) {
			further := o.Validating.Value.Webhooks[0]
			further.Name = "further.sluice.dev"
			o.Validating.Value.Webhooks = append(o.Validating.Value.Webhooks, further)
		}, "webhook-configurations", "Warning ValidatingWebhookConfiguration sluice: webhook further.sluice.dev is not one", nil},
		"kube-system depends on the webhook": {func(o *Observation) {
			for i := range o.Validating.Value.Webhooks {
				o.Validating.Value.Webhooks[i].NamespaceSelector = nil
			}
		}, "webhook-namespaces", "webhook pods.sluice.dev is called for objects in kube-system", []string{"webhook-configurations"}},
		"no caBundle":           {func(o *Observation) { setBundles(o, nil) }, "webhook-configurations", "has no caBundle", nil},
		"a caBundle of nothing": {func(o *Observation) { setBundles(o, []byte("nothing")) }, "certificates", "the caBundle of webhook projects.sluice.dev is invalid", nil},
		"another authority": {func(o *Observation) {
			other, _ := newCertificates(t, testNow.Add(-time.Hour), testNow.Add(90*24*time.Hour))
			setBundles(o, other)
		}, "certificates", "no authority in the caBundle of webhook projects.sluice.dev issued", nil},
		"a certificate that ends":  {func(o *Observation) { o.Now = testNow.Add(85 * 24 * time.Hour) }, "certificates", "Warning : the webhook's certificate ends on 2027-02-19", []string{"lifecycle", "agents"}},
		"a certificate that ended": {func(o *Observation) { o.Now = testNow.Add(91 * 24 * time.Hour) }, "certificates", "Error : the webhook's certificate ended on 2027-02-19", []string{"lifecycle", "agents"}},
		"a pool without nodes": {func(o *Observation) {
			o.NodePools.Value[0].Status.Conditions[0] = metav1.Condition{Type: "Ready", Status: "False", Reason: "NoNodes"}
		}, "node-pools", "Error NodePool dgx: Ready (NoNodes)", nil},
		"missing requirements": {func(o *Observation) {
			addCondition(&o.NodePools.Value[0].Status.Conditions, v1alpha1.ConditionRequirementsMet, metav1.ConditionFalse, v1alpha1.ReasonRequirementsMissing)
		}, "node-pools", "Error NodePool dgx: RequirementsMet (RequirementsMissing)", nil},
		"an unknown reason": {func(o *Observation) {
			addCondition(&o.NodePools.Value[0].Status.Conditions, v1alpha1.ConditionPlanned, metav1.ConditionFalse, "Novel")
		}, "node-pools", "Warning NodePool dgx: Planned (Novel)", nil},
		"a pool that lifecycle did not observe": {func(o *Observation) { o.NodePools.Value[0].Generation = 3 }, "node-pools", "lifecycle has not observed", nil},
		"no pool":                               {func(o *Observation) { o.NodePools.Value = nil }, "node-pools", "Warning : there is no NodePool", []string{"node-capacity"}},
		"an unknown number of GPUs":             {func(o *Observation) { delete(o.Nodes.Value[0].Labels, v1alpha1.LabelGPUCount); o.GPUNodes.Value = nil }, "gpus-known", "Warning Node dgx-1", nil},
		"no capacity":                           {func(o *Observation) { delete(o.Nodes.Value[0].Status.Allocatable, v1alpha1.ResourceGPUMilli) }, "node-capacity", "Error Node dgx-1: its allocatable sluice.dev/gpu-milli is 0, and must be 2k", nil},
		"two pools": {func(o *Observation) {
			second := o.NodePools.Value[0].DeepCopy()
			second.Name = "second"
			o.NodePools.Value = append(o.NodePools.Value, *second)
		}, "node-capacity", "several node pools select it, so that it belongs to none: dgx, second", nil},
		"a resource that no list knows": {func(o *Observation) {
			o.NodePools.Value[0].Status.UnlistedResources = []v1alpha1.UnlistedResource{{Name: "nvidia.com/a100"}, {Name: "rdma/hca"}}
		}, "unlisted-resources", "Warning NodePool dgx: its nodes offer nvidia.com/a100, or offered it", nil},
		"a pod whose resource a pool began to offer": {func(o *Observation) {
			o.NodePools.Value[0].Status.UnlistedResources = []v1alpha1.UnlistedResource{{Name: "nvidia.com/a100"}}
			pod := newGPUPod("lab", "early")
			pod.Spec.Containers[0].Resources.Limits = corev1.ResourceList{"nvidia.com/a100": resource.MustParse("1")}
			o.UnlistedPods = []corev1.Pod{pod}
		}, "unlisted-resources", "Error Pod lab/early: it requests nvidia.com/a100, which nodes of node pool dgx began to offer later", nil},
		"a node of no pool":  {func(o *Observation) { delete(o.Nodes.Value[0].Labels, v1alpha1.LabelNodePool) }, "node-capacity", "Warning Node dgx-1: it has GPUs, and no node pool selects it", nil},
		"no agent on a node": {func(o *Observation) { o.Nodes.Value = append(o.Nodes.Value, newGPUNode("dgx-2")) }, "agents", "Warning Node dgx-2: it has GPUs and no agent reports it", nil},
		"a stale sample":     {func(o *Observation) { o.GPUNodes.Value[0].Status.SampledAt.Time = testNow.Add(-time.Hour) }, "agents", "Error GPUNode dgx-1: its agent has not reported for 1h0m0s", nil},
		"an agent not ready": {func(o *Observation) { o.GPUNodes.Value[0].Status.Conditions[0].Status = metav1.ConditionFalse }, "agents", "Error GPUNode dgx-1: not ready", nil},
		"a GPU lost": {func(o *Observation) {
			addCondition(&o.GPUNodes.Value[0].Status.Conditions, v1alpha1.ConditionGPULost, metav1.ConditionTrue, "GPULost")
		}, "gpus", "Error GPUNode dgx-1: GPULost", nil},
		"an unhealthy GPU": {func(o *Observation) { o.GPUNodes.Value[0].Status.GPUs[1].Health = v1alpha1.GPUUnhealthy }, "gpus", "GPU 0 (GPU-1) is unhealthy", nil},
		"a reset is required": {func(o *Observation) {
			addCondition(&o.GPUNodes.Value[0].Status.Conditions, v1alpha1.ConditionResetRequired, metav1.ConditionTrue, "x")
		}, "gpus", "Warning GPUNode dgx-1: ResetRequired", nil},
		"a finding": {func(o *Observation) {
			o.GPUNodes.Value[0].Status.Pods = []v1alpha1.PodUsage{{PodReference: v1alpha1.PodReference{UID: "u", Namespace: "lab", Name: "train"}}}
			o.GPUNodes.Value[0].Status.Findings = []v1alpha1.Finding{{PodUID: "u", Reason: v1alpha1.FindingShareExceeded, Since: metav1.NewTime(testNow)}}
		}, "gpus", "pod lab/train: ShareExceeded since 2026-11-21 16:00 UTC", nil},
		"a policy that does not compile": {func(o *Observation) {
			p := &o.Policies.Value[0]
			p.Status.Conditions[0].Status = metav1.ConditionFalse
			p.Status.Errors = []v1alpha1.PolicyError{{Line: 3, Message: "unexpected token"}}
		}, "policies", "Error Policy core.gpu: it does not compile (line 3: unexpected token), and generation 1 stays in force", nil},
		"a policy that takes too long": {func(o *Observation) {
			addCondition(&o.Policies.Value[0].Status.Conditions, v1alpha1.ConditionTimedOut, metav1.ConditionTrue, "x")
		}, "policies", "Warning Policy core.gpu: ", nil},
		"data are missing": {func(o *Observation) {
			c := &o.Policies.Value[0].Status.Conditions[1]
			c.Status, c.Reason, c.Message = metav1.ConditionFalse, v1alpha1.ReasonDataMissing, "data.config.limits: the ConfigMap does not exist"
		}, "policies", "Error Policy core.gpu: data.config.limits: the ConfigMap does not exist", nil},
		"no policies": {func(o *Observation) { o.Policies.Value = nil }, "policies", "Error : there are no Policies", nil},
		"a policy of no department": {func(o *Observation) {
			o.Policies.Value = append(o.Policies.Value, newPolicy("theirs", func(p *v1alpha1.Policy) { p.Spec.Match.Departments = []string{"gone"} }))
		}, "policy-matches", "Warning Policy theirs: it matches nothing: spec.match.departments", nil},
		"a missing admission policy": {func(o *Observation) { o.AdmissionPolicies.Value = o.AdmissionPolicies.Value[1:] }, "admission-policies", "it does not exist", nil},
		"a changed admission policy": {func(o *Observation) {
			o.AdmissionPolicies.Value[0].Spec.Validations = nil
		}, "admission-policies", "its expressions are not those of this version", nil},
		"a binding that only warns": {func(o *Observation) {
			for i := range o.AdmissionBindings.Value {
				o.AdmissionBindings.Value[i].Spec.ValidationActions = []admissionv1.ValidationAction{admissionv1.Warn}
			}
		}, "admission-policies", "it does not deny: its validationActions are [Warn]", nil},
		"no parameters":          {func(o *Observation) { o.Parameters.Value = nil }, "admission-policies", "Error AdmissionParameters sluice: it does not exist", nil},
		"policies not evaluated": {func(o *Observation) { o.OutsideProbe = Probe{Made: true} }, "admission-policies-enforced", "Error : the API server neither refused", nil},
		"a project not ready":    {func(o *Observation) { o.Projects.Value[0].Status.Conditions[0].Status = metav1.ConditionFalse }, "projects", "Error Project lab: Ready", nil},
		"an oversubscribed department": {func(o *Observation) {
			addCondition(&o.Departments.Value[0].Status.Conditions, v1alpha1.ConditionOversubscribed, metav1.ConditionTrue, v1alpha1.ReasonGuaranteesExceedQuota)
		}, "projects", "Warning Department research: Oversubscribed", nil},
		"a pod outside": {func(o *Observation) {
			o.GPUPods.Value = append(o.GPUPods.Value, newGPUPod("old", "b"), newGPUPod("old", "a"))
		}, "gpu-pods-outside", "Namespace old: GPU pods outside of a project: 2 (a, b); gpuPodsOutside: Deny would refuse such pods", nil},
		"a pause": {func(o *Observation) {
			o.Parameters.Value.Status.Pause = &v1alpha1.Pause{
				Since: metav1.NewTime(o.PolicyNow.Add(-time.Hour)), Until: metav1.NewTime(o.PolicyNow.Add(time.Hour)), By: "petra", Reason: "a broken policy",
			}
		}, "pause", "Warning AdmissionParameters sluice: petra paused Sluice until ", nil},
		"an engaged stop limiter": {func(o *Observation) {
			o.StopLimiter.Value = &corev1.ConfigMap{Data: map[string]string{"research": `{"engagedAt":"2026-11-21T15:00:00Z","stopsDue":60,"runningWorkloads":100}`}}
		}, "stop-limiter", "Warning Department research: the stop limiter is engaged since 2026-11-21 15:00 UTC: 60 of 100", nil},
		"unstoppable work": {func(o *Observation) {
			clock := v1alpha1.WorkloadClock{ObjectMeta: metav1.ObjectMeta{Namespace: "lab"}, Spec: v1alpha1.WorkloadClockSpec{Root: v1alpha1.WorkloadReference{Kind: "Job", Name: "train"}}}
			addCondition(&clock.Status.Conditions, v1alpha1.ConditionUnstoppable, metav1.ConditionTrue, "Restarted")
			o.Clocks.Value = []v1alpha1.WorkloadClock{clock}
		}, "unstoppable", "Warning Job lab/train: it runs although Sluice stopped it (Restarted)", nil},
		"mail paused by a person": {func(o *Observation) { o.MailState.Value.Data[outbox.MailStatePausedKey] = "true" }, "mail", "Warning ConfigMap sluice-system/sluice-mail: mail is paused", nil},
		"mail paused by lifecycle": {func(o *Observation) {
			o.MailState.Value.Data[outbox.MailStatePausedKey], o.MailState.Value.Data[outbox.MailStateConfigurationKey] = "true", "x"
		}, "mail", "Error ConfigMap sluice-system/sluice-mail: lifecycle paused mail", nil},
		"no mail server": {func(o *Observation) {
			o.MailState.Value, o.LifecycleConfig.Value = nil, &corev1.ConfigMap{Data: map[string]string{"lifecycle.yaml": "gpuPodsOutside: Warn\n"}}
		}, "mail", "Warning : no mail server is configured", nil},
		"notices failed": {func(o *Observation) {
			o.Notices.Value = []v1alpha1.Notice{{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Status: v1alpha1.NoticeStatus{Phase: v1alpha1.NoticeFailed, LastError: "550 no such user"}}}
		}, "notices", "Warning : 1 notices failed and are not sent again; the latest is n: 550 no such user", nil},
		"notices late": {func(o *Observation) {
			o.Notices.Value = []v1alpha1.Notice{{Spec: v1alpha1.NoticeSpec{DueAt: metav1.NewTime(testNow.Add(-2 * time.Hour))}}}
		}, "notices", "notices are due for more than 1h0m0s", nil},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			o := newHealthy(t)
			tc.change(o)
			report := Diagnose(o)
			got := findCheck(t, report, tc.check)
			if !strings.Contains(allFindings(got), tc.want) {
				t.Errorf("%s is %s %q, want %q in\n%s", got.Name, got.Result, got.Message, tc.want, allFindings(got))
			}
			for _, c := range report.Checks {
				if len(c.Findings) > 0 && c.Name != tc.check && !strings.Contains(strings.Join(tc.also, " "), c.Name) {
					t.Errorf("%s has findings, too:\n%s", c.Name, allFindings(c))
				}
				for i := range c.Findings {
					if c.Findings[i].Do == "" {
						t.Errorf("%s does not say what to do: %s", c.Name, findingText(&c.Findings[i]))
					}
				}
			}
		})
	}
}

// A single replica of lifecycle needs no leader election, and several do.
func TestLifecycleWithoutLease(t *testing.T) {
	for replicas, want := range map[int32]Result{1: OK, 2: Warning} {
		o := newHealthy(t)
		o.Leases.Value = nil
		o.Deployments.Value = []appsv1.Deployment{{
			ObjectMeta: metav1.ObjectMeta{Namespace: systemNamespace, Name: lifecycleName},
			Spec:       appsv1.DeploymentSpec{Replicas: &replicas}, Status: appsv1.DeploymentStatus{AvailableReplicas: replicas},
		}}
		if got := findCheck(t, Diagnose(o), "lifecycle"); got.Result != want {
			t.Errorf("%d replicas: %s %q\n%s", replicas, got.Result, got.Message, allFindings(got))
		}
	}
}

// A node of which nothing says that it has GPUs, such as one of the control plane, is no problem.
func TestNodesWithoutGPUs(t *testing.T) {
	o := newHealthy(t)
	o.Nodes.Value = append(o.Nodes.Value, corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "control-plane-1"}})
	if got := Diagnose(o).Summary; got.Errors+got.Warnings > 0 {
		t.Errorf("summary %+v", got)
	}
}

// The webhook's Deployment, its disruption budget and its endpoints.
func TestWebhookReplicasInPods(t *testing.T) {
	o := newHealthy(t)
	o.Embedded = false
	endpoints := o.Endpoints.Value
	o.Endpoints.Value, o.Budgets.Value, o.Deployments.Value[0].Status.AvailableReplicas = nil, nil, 1
	got := findCheck(t, Diagnose(o), "webhook-replicas")
	for _, want := range []string{
		"Error Service sluice-system/webhook: it has no ready endpoint", "Warning Deployment sluice-system/webhook: 1 of 2 replicas are available",
		"Warning : no PodDisruptionBudget",
	} {
		if !strings.Contains(allFindings(got), want) {
			t.Errorf("no %q in\n%s", want, allFindings(got))
		}
	}
	o.Endpoints.Value = endpoints
	if got := findCheck(t, Diagnose(o), "webhook-replicas"); got.Result != Warning {
		t.Errorf("with an endpoint: %s\n%s", got.Result, allFindings(got))
	}
}

// A check whose objects cannot be read is skipped, with the right that is missing. It is never OK.
func TestMissingRightsSkipChecks(t *testing.T) {
	unread := Read[[]corev1.Node]{What: "list nodes", Err: forbidden("nodes")}
	want := "no right to list nodes (kubectl auth can-i list nodes); the ClusterRole sluice:doctor grants it"
	if got := unread.unread(); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	o := newHealthy(t)
	err := forbidden("everything")
	o.Kubernetes.Err, o.Resources.Err, o.CRDs.Err, o.Validating.Err, o.Mutating.Err = err, err, err, err, err
	o.AdmissionPolicies.Err, o.AdmissionBindings.Err, o.Leases.Err, o.Deployments.Err, o.MailState.Err, o.StopLimiter.Err = err, err, err, err, err, err
	o.Namespaces.Err, o.Nodes.Err, o.GPUPods.Err, o.Departments.Err, o.Projects.Err, o.NodePools.Err, o.GPUNodes.Err = err, err, err, err, err, err, err
	o.Policies.Err, o.Clocks.Err, o.Notices.Err, o.Parameters.Err = err, err, err, err
	o.CRDs.Value, o.Leases.Value, o.Deployments.Value = nil, nil, nil
	o.WebhookProbe = Probe{Made: true, Err: forbidden("projects.sluice.dev")}
	o.OutsideProbe = Probe{Made: true, Err: forbidden("pods")}
	for _, c := range Diagnose(o).Checks {
		if c.Result != Skipped || !strings.Contains(c.Message, "no right to") {
			t.Errorf("%s: %s %q\n%s", c.Name, c.Result, c.Message, allFindings(c))
		}
	}
}

// Before Sluice is installed, the checks of the cluster run, and all others say why they do not.
func TestPreflight(t *testing.T) {
	o := newHealthy(t)
	o.CRDs.Value, o.Parameters.Value = nil, nil
	o.GPUPods.Value = append(o.GPUPods.Value, newGPUPod("old", "a"))
	report := Diagnose(o)
	want := map[string]Result{"kubernetes-version": OK, "kubernetes-apis": OK, "gpus-known": OK, "gpu-pods-outside": Warning}
	for _, c := range report.Checks {
		result, runs := want[c.Name]
		if !runs {
			result = Skipped
		}
		if c.Result != result || !runs && c.Message != "Sluice is not installed in this cluster" {
			t.Errorf("%s: %s %q, want %s", c.Name, c.Result, c.Message, result)
		}
	}
	if report.Installed {
		t.Error("Sluice counts as installed")
	}
}

// A check lists a limited number of findings, the worst first.
func TestFindingsAreLimited(t *testing.T) {
	o := newHealthy(t)
	for range 100 {
		p := o.Projects.Value[0].DeepCopy()
		p.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionMembersBound, Status: metav1.ConditionFalse}}
		o.Projects.Value = append(o.Projects.Value, *p)
	}
	o.Projects.Value = append(o.Projects.Value, *o.Projects.Value[0].DeepCopy())
	o.Projects.Value[101].Status.Conditions[0].Status = metav1.ConditionFalse
	got := findCheck(t, Diagnose(o), "projects")
	if len(got.Findings) != maxFindings || got.MoreFindings != 81 || got.Result != Error || got.Findings[0].Result != Error {
		t.Errorf("%d findings and %d more, %s, first %s", len(got.Findings), got.MoreFindings, got.Result, got.Findings[0].Result)
	}
}

func TestParseRelease(t *testing.T) {
	for text, want := range map[string]release{
		"v1.34.2": {1, 34}, "v0.3.0-12-g1a2b3c4-dirty": {0, 3}, "1.32": {1, 32}, "v1.33+": {1, 33}, "v1.36.3-rke2r1": {1, 36},
	} {
		if got, ok := parseRelease(text); !ok || got != want {
			t.Errorf("%s: %v, %v", text, got, ok)
		}
	}
	for _, text := range []string{"", "unknown", "8e4f780b", "v1", "v1.", "latest", "v1.99999999.0", "1.-2"} {
		if got, ok := parseRelease(text); ok {
			t.Errorf("%q: %v", text, got)
		}
	}
}

func TestImageTag(t *testing.T) {
	for image, want := range map[string]string{
		"sluice-webhook:v1.0.0": "v1.0.0", "r:5000/sluice-webhook": "", "r:5000/sluice-webhook:v1@sha256:00": "v1", "": "", "a@sha256:00": "",
	} {
		if got := ImageTag(image); got != want {
			t.Errorf("%s: %q, want %q", image, got, want)
		}
	}
}

// A pod requests a GPU by what the admission policy sluice-gpu-pods names.
func TestGPURequest(t *testing.T) {
	parameters := (&Observation{}).parameters()
	tests := map[string]struct {
		resource, annotation string
		want                 bool
	}{
		"a GPU": {"nvidia.com/gpu", "", true}, "a slice": {"nvidia.com/mig-1g.5gb", "", true}, "quota": {"sluice.dev/gpu-milli.dgx", "", true}, "the guarantee": {"sluice.dev/guaranteed-milli.dgx", "", true},
		"a device class": {"deviceclass.resource.kubernetes.io/gpu.nvidia.com", "", true}, "a share": {"", "gpu-fraction", true},
		"another class": {"deviceclass.resource.kubernetes.io/net", "", false}, "CPU": {"cpu", "", false}, "another annotation": {"", "gpu", false},
	}
	for name, tc := range tests {
		pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{tc.annotation: "0"}}}
		if tc.resource != "" {
			pod.Spec.InitContainers = []corev1.Container{{Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceName(tc.resource): resource.MustParse("1")},
			}}}
		}
		if got := gpuRequest(&pod, &parameters); (got != "") != tc.want {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// setRules sets the rules of webhooks of both configurations.
func setRules(o *Observation, rules map[string][]admissionv1.RuleWithOperations) {
	for i := range o.Validating.Value.Webhooks {
		if w := &o.Validating.Value.Webhooks[i]; rules[w.Name] != nil {
			w.Rules = rules[w.Name]
		}
	}
	for i := range o.Mutating.Value.Webhooks {
		if w := &o.Mutating.Value.Webhooks[i]; rules[w.Name] != nil {
			w.Rules = rules[w.Name]
		}
	}
}

// The rules of added kinds are those of the setting, and are not compared if it cannot be read.
func TestRulesOfAddedKinds(t *testing.T) {
	setting := []v1alpha1.PodTemplates{{Kind: "Trainer.example.org", Resource: "trainers", Paths: []string{"spec.template"}}}
	o := newHealthy(t)
	setRules(o, workloadkind.AddedRules(setting))
	o.Parameters.Value.Spec.PodTemplates = setting
	if out := checkWebhookConfigurations(o); len(out.findings) > 0 {
		t.Errorf("as in the setting: %v", out.findings)
	}
	o.Parameters.Value, o.Parameters.Err = nil, errors.New("forbidden")
	if out := checkWebhookConfigurations(o); len(out.findings) > 0 {
		t.Errorf("without the right to read the setting: %v", out.findings)
	}
}
