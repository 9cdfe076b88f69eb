// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package admissionpolicy_test

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/rendering/admissionpolicy"
)

// expect maps a case to a request and to a part of the refusal; an empty text expects that the request is allowed.
type expect map[string]struct {
	request admissionRequest
	want    string
}

func (cases expect) run(t *testing.T) {
	t.Helper()
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := strings.Join(tc.request.deny(t), "\n")
			if (got == "") != (tc.want == "") || !strings.Contains(got, tc.want) {
				t.Errorf("refused with %q, want %q", got, tc.want)
			}
		})
	}
}

// A selector does not match the pods of other users by the labels that Sluice sets on all. Guards invariants 4 and 12 of
// the design.
func TestSelectorsHaveNoLabelsOfSluice(t *testing.T) {
	const want = "sluice-selectors: spec.selector: sluice.dev/project: pods of other users have this label too"
	thief := `{apiVersion: apps/v1, kind: ReplicaSet, metadata: {name: thief}, spec: {replicas: 0, selector: {matchLabels: {sluice.dev/project: lab}}}}`
	own := `{apiVersion: apps/v1, kind: ReplicaSet, metadata: {name: thief}, spec: {replicas: 0, selector: {matchLabels: {app: own}}}}`
	const ofAll = "sluice-selectors: spec.selector: it also matches pods of other users, and would keep them from eviction"
	budget := func(selector string) admissionRequest {
		return admissionRequest{resource: "poddisruptionbudgets.policy", object: `{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: all}, spec: {maxUnavailable: 0, ` + selector + `}}`}
	}
	expect{
		"a ReplicaSet":              {admissionRequest{resource: "replicasets.apps", object: thief}, want},
		"a changed ReplicaSet":      {admissionRequest{resource: "replicasets.apps", old: own, object: thief}, want},
		"an unchanged selector":     {admissionRequest{resource: "replicasets.apps", old: thief, object: thief}, ""},
		"a selector of its own":     {admissionRequest{resource: "replicasets.apps", object: own}, ""},
		"a controller's copy":       {admissionRequest{user: replicaSet, resource: "replicasets.apps", object: thief}, ""},
		"an expression":             {admissionRequest{resource: "deployments.apps", object: `{apiVersion: apps/v1, kind: Deployment, metadata: {name: thief}, spec: {selector: {matchExpressions: [{key: sluice.dev/project, operator: Exists}]}}}`}, want},
		"a Job with manualSelector": {admissionRequest{resource: "jobs.batch", object: `{apiVersion: batch/v1, kind: Job, metadata: {name: thief}, spec: {manualSelector: true, selector: {matchLabels: {sluice.dev/project: lab}}}}`}, want},
		"such a Job of a CronJob":   {admissionRequest{resource: "cronjobs.batch", object: `{apiVersion: batch/v1, kind: CronJob, metadata: {name: thief}, spec: {jobTemplate: {spec: {manualSelector: true, selector: {matchLabels: {sluice.dev/project: lab}}}}}}`}, want},
		"a Job without a selector":  {admissionRequest{resource: "jobs.batch", object: `{apiVersion: batch/v1, kind: Job, metadata: {name: training}, spec: {}}`}, ""},
		"a ReplicationController":   {admissionRequest{resource: "replicationcontrollers", object: `{apiVersion: v1, kind: ReplicationController, metadata: {name: thief}, spec: {selector: {sluice.dev/project: lab}}}`}, want},
		"a Service":                 {admissionRequest{resource: "services", object: `{apiVersion: v1, kind: Service, metadata: {name: thief}, spec: {selector: {sluice.dev/project: lab}}}`}, want},
		"a PodDisruptionBudget":     {admissionRequest{resource: "poddisruptionbudgets.policy", object: `{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: thief}, spec: {maxUnavailable: 0, selector: {matchLabels: {sluice.dev/project: lab}}}}`}, want},
		"a budget of all":           {budget("selector: {}"), ofAll},
		"a budget of most":          {budget("selector: {matchExpressions: [{key: app, operator: NotIn, values: [own]}]}"), ofAll},
		"a budget of none":          {budget(""), ""},
		"a budget of one's own":     {budget("selector: {matchLabels: {app: own}}"), ""},
		"a budget of several":       {budget("selector: {matchExpressions: [{key: app, operator: In, values: [own]}, {key: tier, operator: Exists}]}"), ""},
	}.run(t)
}

// A project is reached from outside as its department allows, and takes no connections of others. Guards invariant 4 of
// the design.
func TestServicesAndIngresses(t *testing.T) {
	shipped := &v1alpha1.ProjectParameters{Spec: v1alpha1.ProjectParametersSpec{Services: v1alpha1.ServiceTerms{Types: []v1alpha1.ServiceType{"ClusterIP"}}}}
	h2 := shipped.DeepCopy()
	h2.Spec.Services.Types = []v1alpha1.ServiceType{"ClusterIP", "LoadBalancer"}
	h2.Spec.Services.IngressHosts = []v1alpha1.IngressHost{"*.h2.example.org", "h2.example.org"}
	service := func(spec string) string {
		return `{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {` + spec + `}}`
	}
	ingress := func(spec string) string {
		return `{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {name: web}, spec: {` + spec + `}}`
	}
	rule := func(host string) string { return ingress(`rules: [{host: "` + host + `"}]`) }
	snippet := `{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {name: web, annotations: {nginx.ingress.kubernetes.io/%: x}}, spec: {rules: [{host: a.h2.example.org}]}}`
	on := func(resource string, with *v1alpha1.ProjectParameters, old, object string) admissionRequest {
		return admissionRequest{resource: resource, old: old, object: object, parameters: with}
	}
	const services, ingresses = "services", "ingresses.networking.k8s.io"
	operator := on(services, shipped, "", service("type: ExternalName, externalName: a.example.org"))
	operator.rights = []string{"expose services.sluice.dev"}
	expect{
		"a Service":                   {on(services, shipped, "", service("selector: {app: own}")), ""},
		"ClusterIP":                   {on(services, shipped, "", service("type: ClusterIP")), ""},
		"NodePort":                    {on(services, shipped, "", service("type: NodePort")), "spec.type: NodePort: the department allows ClusterIP"},
		"ExternalName":                {on(services, shipped, "", service("type: ExternalName, externalName: kubernetes.default.svc")), "spec.type: ExternalName"},
		"LoadBalancer":                {on(services, shipped, "", service("type: LoadBalancer")), "spec.type: LoadBalancer"},
		"an allowed LoadBalancer":     {on(services, h2, "", service("type: LoadBalancer")), ""},
		"a type later":                {on(services, shipped, service("type: ClusterIP"), service("type: NodePort")), "spec.type: NodePort"},
		"an older type":               {on(services, shipped, service("type: NodePort"), service("type: NodePort, selector: {app: own}")), ""},
		"external IPs":                {on(services, h2, "", service("externalIPs: [192.0.2.7]")), "spec.externalIPs: 192.0.2.7"},
		"external IPs later":          {on(services, h2, service(""), service("externalIPs: [192.0.2.7]")), "spec.externalIPs: 192.0.2.7"},
		"an operator's Service":       {operator, ""},
		"a host without terms":        {on(ingresses, shipped, "", rule("a.h2.example.org")), "host a.h2.example.org: the department allows none"},
		"an allowed host":             {on(ingresses, h2, "", rule("a.h2.example.org")), ""},
		"the host itself":             {on(ingresses, h2, "", rule("h2.example.org")), ""},
		"all allowed hosts":           {on(ingresses, h2, "", rule("*.h2.example.org")), ""},
		"another's host":              {on(ingresses, h2, "", rule("portal.example.org")), "host portal.example.org: the department allows *.h2.example.org"},
		"a longer name":               {on(ingresses, h2, "", rule("evilh2.example.org")), "host evilh2.example.org"},
		"a wider wildcard":            {on(ingresses, h2, "", rule("*.example.org")), "host *.example.org"},
		"all hosts":                   {on(ingresses, h2, "", ingress("rules: [{}]")), "all hosts"},
		"a default backend":           {on(ingresses, h2, "", ingress("defaultBackend: {service: {name: web, port: {number: 80}}}")), "all hosts"},
		"another's certificate":       {on(ingresses, h2, "", ingress("tls: [{hosts: [a.h2.example.org, portal.example.org]}], rules: [{host: a.h2.example.org}]")), "portal.example.org"},
		"another's host later":        {on(ingresses, h2, rule("a.h2.example.org"), rule("portal.example.org")), "host portal.example.org"},
		"an older host":               {on(ingresses, shipped, rule("old.example.org"), ingress(`ingressClassName: nginx, rules: [{host: old.example.org}]`)), ""},
		"a snippet":                   {on(ingresses, h2, "", strings.ReplaceAll(snippet, "%", "configuration-snippet")), "nginx.ingress.kubernetes.io/configuration-snippet: changes the configuration"},
		"another annotation":          {on(ingresses, h2, "", strings.ReplaceAll(snippet, "%", "proxy-body-size")), ""},
		"a route without hosts":       {on("httproutes.gateway.networking.k8s.io", h2, "", `{apiVersion: gateway.networking.k8s.io/v1, kind: HTTPRoute, metadata: {name: web}, spec: {}}`), "all hosts"},
		"a route with an allowed one": {on("httproutes.gateway.networking.k8s.io", h2, "", `{apiVersion: gateway.networking.k8s.io/v1, kind: HTTPRoute, metadata: {name: web}, spec: {hostnames: [a.h2.example.org]}}`), ""},
	}.run(t)
}

// A user withdraws an own request and no other. Guards invariant 4 of the design.
func TestExtensionsAreDeletedByTheirRequester(t *testing.T) {
	const spec = `, spec: {action: Extend, target: {apiVersion: batch/v1, kind: Job, name: training}}`
	const ofAnna = `{apiVersion: sluice.dev/v1alpha1, kind: Extension, metadata: {name: more, annotations: {sluice.dev/created-by: anna@example.org}}` + spec
	const ofBen = `{apiVersion: sluice.dev/v1alpha1, kind: Extension, metadata: {name: more, annotations: {sluice.dev/created-by: ben@example.org}}` + spec + `}`
	const request = `{apiVersion: sluice.dev/v1alpha1, kind: Extension, metadata: {name: deletion-1}, spec: {action: Delete, target: {name: thesis}}`
	const withName = `{apiVersion: sluice.dev/v1alpha1, kind: Extension, metadata: {name: deletion-1, annotations: {sluice.dev/created-by: anna@example.org}}, spec: {action: Delete, target: {name: thesis}}}`
	member := []string{"own-only extensions.sluice.dev"}
	owner := []string{"own-only extensions.sluice.dev", "others extensions.sluice.dev"}
	const decide = "extension deletion-1 is the request of Sluice to delete project thesis, and users do not delete it"
	expect{
		"an own request":          {admissionRequest{resource: "extensions.sluice.dev", old: ofAnna + "}", rights: member}, ""},
		"an own decided request":  {admissionRequest{resource: "extensions.sluice.dev", old: ofAnna + ", status: {decision: Approved}}", rights: member}, "was decided"},
		"another user's":          {admissionRequest{resource: "extensions.sluice.dev", old: ofBen, rights: member}, "extension more was requested by ben@example.org"},
		"another's, by an owner":  {admissionRequest{resource: "extensions.sluice.dev", old: ofBen, rights: owner}, ""},
		"Sluice's request":        {admissionRequest{resource: "extensions.sluice.dev", old: request + "}", rights: member}, decide},
		"it, by an administrator": {admissionRequest{resource: "extensions.sluice.dev", old: request + "}", rights: owner}, decide},
		"it, with a user's name":  {admissionRequest{resource: "extensions.sluice.dev", old: withName, rights: member}, decide},
		"it, decided":             {admissionRequest{resource: "extensions.sluice.dev", old: request + ", status: {decision: Denied}}", rights: owner}, decide},
		"it, by Sluice":           {admissionRequest{user: "system:serviceaccount:sluice-system:lifecycle", resource: "extensions.sluice.dev", old: request + "}"}, ""},
		"with the namespace":      {admissionRequest{user: "system:serviceaccount:kube-system:namespace-controller", resource: "extensions.sluice.dev", old: ofBen}, ""},
	}.run(t)
}

// The workload type decides the priority in Kueue's queue, and a workload that a user's own controller manages would
// hold the quota without pods. Guards invariants 4 and 12 of the design.
func TestKueueFieldsOfWorkloads(t *testing.T) {
	const (
		plain    = `{apiVersion: batch/v1, kind: Job, metadata: {name: training}, spec: {suspend: true}}`
		labeled  = `{apiVersion: batch/v1, kind: Job, metadata: {name: training, labels: {kueue.x-k8s.io/priority-class: high}}, spec: {suspend: true}}`
		class    = "metadata.labels[kueue.x-k8s.io/priority-class]: the priority in the queue follows from the workload type"
		managers = "spec.managedBy: example.org/mine: no known controller would start the workload"
	)
	managedBy := func(manager string) string {
		return `{apiVersion: batch/v1, kind: Job, metadata: {name: training}, spec: {managedBy: ` + manager + `}}`
	}
	expect{
		"a class at creation":           {admissionRequest{resource: "jobs.batch", object: labeled, queued: true}, class},
		"a class without Kueue":         {admissionRequest{resource: "jobs.batch", object: labeled}, ""},
		"a class later":                 {admissionRequest{resource: "jobs.batch", old: plain, object: labeled, queued: true}, class},
		"an older class":                {admissionRequest{resource: "jobs.batch", old: labeled, object: strings.Replace(labeled, "true", "false", 1), queued: true}, ""},
		"an older class is removed":     {admissionRequest{resource: "jobs.batch", old: labeled, object: plain, queued: true}, ""},
		"a class of a CronJob's Jobs":   {admissionRequest{resource: "cronjobs.batch", object: `{apiVersion: batch/v1, kind: CronJob, metadata: {name: nightly}, spec: {jobTemplate: {metadata: {labels: {kueue.x-k8s.io/priority-class: high}}}}}`, queued: true}, class},
		"a class of a Deployment":       {admissionRequest{resource: "deployments.apps", object: `{apiVersion: apps/v1, kind: Deployment, metadata: {name: serve, labels: {kueue.x-k8s.io/priority-class: high}}}`, queued: true}, class},
		"Kueue's Workload":              {admissionRequest{user: "system:serviceaccount:kueue-system:kueue-controller-manager", resource: "workloads.kueue.x-k8s.io", object: `{apiVersion: kueue.x-k8s.io/v1beta2, kind: Workload, metadata: {name: w, labels: {kueue.x-k8s.io/priority-class: high}}}`, queued: true}, ""},
		"a controller of the user's":    {admissionRequest{resource: "jobs.batch", object: managedBy("example.org/mine")}, managers},
		"the Job controller":            {admissionRequest{resource: "jobs.batch", object: managedBy("kubernetes.io/job-controller")}, ""},
		"MultiKueue":                    {admissionRequest{resource: "jobs.batch", object: managedBy("kueue.x-k8s.io/multikueue")}, ""},
		"a PyTorchJob's":                {admissionRequest{resource: "pytorchjobs.kubeflow.org", object: `{apiVersion: kubeflow.org/v1, kind: PyTorchJob, metadata: {name: training}, spec: {runPolicy: {managedBy: example.org/mine}}}`}, managers},
		"that of a CronJob's Jobs":      {admissionRequest{resource: "cronjobs.batch", object: `{apiVersion: batch/v1, kind: CronJob, metadata: {name: nightly}, spec: {jobTemplate: {spec: {managedBy: example.org/mine}}}}`}, managers},
		"that of a Job of a controller": {admissionRequest{user: "system:serviceaccount:kube-system:cronjob-controller", resource: "jobs.batch", object: managedBy("example.org/mine")}, managers},
	}.run(t)
}

// A pod gets no devices by an annotation, neither at its creation nor while it waits for a node. Guards invariant 4 of
// the design.
func TestDeviceAnnotations(t *testing.T) {
	pod := func(annotations string) string {
		return `{apiVersion: v1, kind: Pod, metadata: {name: notebook, annotations: {sluice.dev/created-by: anna@example.org` + annotations + `}}, spec: {containers: []}}`
	}
	for _, key := range admissionpolicy.NewParameters(v1alpha1.AdmissionParametersSpec{}).Spec.DeviceAnnotations {
		want := "sluice-managed-metadata: metadata.annotations: " + key
		expect{
			key + " at creation":   {admissionRequest{resource: "pods", object: pod(", " + key + "/main: x")}, want},
			key + " later":         {admissionRequest{resource: "pods", old: pod(""), object: pod(", " + key + ": x")}, want},
			key + " by the status": {admissionRequest{resource: "pods/status", old: pod(""), object: pod(", " + key + "/a: x")}, want},
			key + " changed":       {admissionRequest{resource: "pods", old: pod(", " + key + "/a: x"), object: pod(", " + key + "/a: y")}, want},
			key + " unchanged":     {admissionRequest{resource: "pods", old: pod(", " + key + ": x"), object: pod(", own: y, " + key + ": x")}, ""},
		}.run(t)
	}
	expect{"another annotation": {admissionRequest{resource: "pods", old: pod(""), object: pod(", example.org/cdi.k8s.io: x")}, ""}}.run(t)
}

// Lifecycle alone writes when a workload ends, and until when it stays stopped. Guards invariant 4 of the design.
func TestAnnotationsOfLifecycle(t *testing.T) {
	workload := func(annotations string) string {
		return `{apiVersion: apps/v1, kind: Deployment, metadata: {name: serve, annotations: {` + annotations + `}}, spec: {}}`
	}
	pod := func(annotations string) string {
		return `{apiVersion: v1, kind: Pod, metadata: {name: serve, annotations: {` + annotations + `}}, spec: {containers: []}}`
	}
	for _, key := range []string{v1alpha1.AnnotationEndsAt, v1alpha1.AnnotationStoppedUntil} {
		early, late := key+": '2020-01-01T00:00:00Z'", key+": '2099-01-01T00:00:00Z'"
		expect{
			key + " at creation":      {admissionRequest{resource: "deployments.apps", object: workload(late)}, "written by Sluice alone"},
			key + " later":            {admissionRequest{resource: "deployments.apps", old: workload(""), object: workload(late)}, "written by Sluice alone"},
			key + " changed":          {admissionRequest{resource: "deployments.apps", old: workload(late), object: workload(early)}, "written by Sluice alone"},
			key + " removed":          {admissionRequest{resource: "deployments.apps", old: workload(late), object: workload("")}, "written by Sluice alone"},
			key + " of a pod":         {admissionRequest{resource: "pods", old: pod(late), object: pod(early)}, "sluice-managed-metadata"},
			key + " by lifecycle":     {admissionRequest{user: lifecycle, resource: "deployments.apps", old: workload(late), object: workload(early)}, ""},
			key + " is left as it is": {admissionRequest{resource: "deployments.apps", old: workload(late), object: workload(late + ", own: x")}, ""},
		}.run(t)
	}
	for _, key := range []string{v1alpha1.AnnotationPreemptAt, v1alpha1.AnnotationPreemptReason, v1alpha1.AnnotationPreemptFor} {
		announced := key + ": Preempted"
		expect{
			key + " added":                {admissionRequest{resource: "pods", old: pod(""), object: pod(announced)}, "sluice-managed-metadata"},
			key + " removed":              {admissionRequest{resource: "pods", old: pod(announced), object: pod("")}, "sluice-managed-metadata"},
			key + " added by lifecycle":   {admissionRequest{user: lifecycle, resource: "pods", old: pod(""), object: pod(announced)}, ""},
			key + " removed by lifecycle": {admissionRequest{user: lifecycle, resource: "pods", old: pod(announced), object: pod("")}, ""},
		}.run(t)
	}
}

// A pod without GPUs gives its place back within a minute, or the grace period that its admission left to it.
func TestGraceOfPodsWithoutGPUs(t *testing.T) {
	pod := func(labels string) string {
		return `{apiVersion: v1, kind: Pod, metadata: {name: batch, labels: {` + labels + `}}, spec: {nodeName: dgx-1, terminationGracePeriodSeconds: 300}}`
	}
	const labels = "sluice.dev/project: lab"
	deletion := func(user, old string, grace int64) admissionRequest {
		return admissionRequest{user: user, resource: "pods", old: old, options: &metav1.DeleteOptions{GracePeriodSeconds: &grace}}
	}
	administrator := deletion("", pod(labels), 3600)
	administrator.rights = []string{"administer departments.sluice.dev"}
	expect{
		"an hour":                 {deletion("", pod(labels), 3600), "gracePeriodSeconds: 3600: a pod of a project without GPUs"},
		"more than its own":       {deletion("", pod(labels), 301), "at most a minute of grace"},
		"its own":                 {deletion("", pod(labels), 300), ""},
		"a minute":                {deletion("", pod(labels), 60), ""},
		"a pod with GPUs":         {deletion("", pod(labels+", sluice.dev/node-pool: dgx"), 3600), ""},
		"from before its project": {deletion("", pod(""), 3600), ""},
		"by an administrator":     {administrator, ""},
		"by lifecycle":            {deletion(lifecycle, pod(labels), 3600), ""},
	}.run(t)
}

// A pod with GPUs keeps the CPU and memory that were compared with its share of a node.
func TestResizes(t *testing.T) {
	pod := func(labels, cpu string) string {
		return `{apiVersion: v1, kind: Pod, metadata: {name: a, labels: {sluice.dev/project: lab` + labels + `}}, spec: {containers: [{name: main, resources: {requests: {cpu: "` + cpu + `"}}}]}}`
	}
	const ofGPUs = ", sluice.dev/node-pool: dgx"
	resize := func(user, labels string) admissionRequest {
		return admissionRequest{user: user, resource: "pods/resize", old: pod(labels, "1"), object: pod(labels, "255")}
	}
	expect{
		"a pod with GPUs":    {resize("", ofGPUs), "sluice-managed-metadata: spec.containers[*].resources: a pod with GPUs keeps the CPU"},
		"by lifecycle":       {resize(lifecycle, ofGPUs), ""},
		"a pod without GPUs": {resize("", ""), ""},
		"the pod itself":     {admissionRequest{resource: "pods", old: pod(ofGPUs, "1"), object: pod(ofGPUs, "1")}, ""},
	}.run(t)
}

// A bound GPU pod leaves the API, and its quota, only when its processes have ended, in whatever form its deletion is
// requested. Guards invariants 3 and 4 of the design: six GPUs were held with a limit of one.
func TestForcedDeletion(t *testing.T) {
	const want = "gracePeriodSeconds: 0: the quota of the pod would be free while its processes still hold the GPU"
	pod := func(labels, spec, status string) string {
		return `{apiVersion: v1, kind: Pod, metadata: {name: held, labels: {` + labels + `}}, spec: {` + spec + `}, status: {` + status + `}}`
	}
	const labels, bound, running = "sluice.dev/project: lab, sluice.dev/node-pool: dgx", "nodeName: dgx-1, terminationGracePeriodSeconds: 30", "phase: Running"
	gpuPod := pod(labels, bound, running)
	deletion := func(user, old string, grace int64) admissionRequest {
		return admissionRequest{user: user, resource: "pods", old: old, options: &metav1.DeleteOptions{GracePeriodSeconds: &grace}}
	}
	eviction := func(user, options string) admissionRequest {
		return admissionRequest{user: user, resource: "pods/eviction", object: `{apiVersion: policy/v1, kind: Eviction, metadata: {name: held}` + options + `}`}
	}
	const none = ", deleteOptions: {gracePeriodSeconds: 0}"
	kubelet, administrator, evictor := deletion("system:node:dgx-1", gpuPod, 0), deletion("", gpuPod, 0), eviction("", none)
	kubelet.groups = []string{"system:nodes", "system:authenticated"}
	administrator.rights = []string{"administer departments.sluice.dev"}
	evictor.rights = administrator.rights
	const collector = "system:serviceaccount:kube-system:pod-garbage-collector"
	expect{
		"a deletion":                        {deletion("", gpuPod, 0), "sluice-grace-periods: " + want},
		"whom to ask":                       {deletion("", gpuPod, 0), "ask an administrator of department physics"},
		"a pending pod on its node":         {deletion("", pod(labels, bound, "phase: Pending"), 0), want},
		"a pod from before its project":     {deletion("", pod("", bound, running), 0), want},
		"an eviction":                       {eviction("", none), "deleteOptions." + want},
		"with a second":                     {deletion("", gpuPod, 1), ""},
		"an ordinary deletion":              {deletion("", gpuPod, 30), ""},
		"of a collection, ordinarily":       {admissionRequest{resource: "pods", old: gpuPod, options: &metav1.DeleteOptions{}}, ""},
		"an ordinary eviction":              {eviction("", ""), ""},
		"an eviction with a second":         {eviction("", ", deleteOptions: {gracePeriodSeconds: 1}"), ""},
		"a pod without a node":              {deletion("", pod(labels, "", "phase: Pending"), 0), ""},
		"a pod that has ended":              {deletion("", pod(labels, bound, "phase: Succeeded"), 0), ""},
		"a pod without GPUs":                {deletion("", pod("sluice.dev/project: lab", bound, running), 0), ""},
		"by the kubelet":                    {kubelet, ""},
		"by the pod garbage collector":      {deletion(collector, gpuPod, 0), ""},
		"by the controller manager":         {deletion("system:kube-controller-manager", gpuPod, 0), ""},
		"by lifecycle":                      {deletion(lifecycle, gpuPod, 0), ""},
		"by an administrator":               {administrator, ""},
		"an eviction by lifecycle":          {eviction(lifecycle, none), ""},
		"an eviction by an administrator":   {evictor, ""},
		"by a project's own ServiceAccount": {deletion("system:serviceaccount:lab:default", gpuPod, 0), want},
	}.run(t)
}
