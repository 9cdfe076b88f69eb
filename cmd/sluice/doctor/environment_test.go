// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"strings"
	"sync"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	policyv1 "k8s.io/api/policy/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/notification/outbox"
	"sluice.dev/lifecycle/rendering/admissionpolicy"
	"sluice.dev/manifests"
)

var testNow = time.Date(2026, 11, 21, 16, 0, 0, 0, time.UTC)

const testVersion = "v0.3.0"

func forbidden(resource string) error {
	return apierrors.NewForbidden(schema.GroupResource{Resource: resource}, "", errors.New("not you"))
}

// expectedObjects reads the manifests once. No test changes them.
var expectedObjects = sync.OnceValues(func() (*Observation, error) {
	o := &Observation{}
	return o, o.addExpected(manifests.Files)
})

// newHealthy returns a cluster with nothing to find, except for what is always skipped.
func newHealthy(t *testing.T) *Observation {
	t.Helper()
	o := &Observation{
		CLIVersion: testVersion, Server: "https://cluster.example", Now: testNow, PolicyNow: testNow, Embedded: true,
		Kubernetes: Read[string]{Value: "v1.34.2"}, Resources: Read[map[string]bool]{Value: map[string]bool{}},
	}
	expected, err := expectedObjects()
	if err != nil {
		t.Fatal(err)
	}
	o.ExpectedCRDs, o.ExpectedValidating, o.ExpectedMutating = expected.ExpectedCRDs, expected.ExpectedValidating, expected.ExpectedMutating
	o.ExpectedAdmissionPolicies, o.ExpectedAdmissionBindings = expected.ExpectedAdmissionPolicies, expected.ExpectedAdmissionBindings
	for api := range requiredAPIs {
		o.Resources.Value[api] = true
	}
	for i := range o.ExpectedCRDs {
		crd := o.ExpectedCRDs[i].DeepCopy()
		crd.Status.Conditions = []apiextensionsv1.CustomResourceDefinitionCondition{{Type: apiextensionsv1.Established, Status: apiextensionsv1.ConditionTrue}}
		o.CRDs.Value = append(o.CRDs.Value, *crd)
	}
	authority, served := newCertificates(t, testNow.Add(-24*time.Hour), testNow.Add(90*24*time.Hour))
	o.Validating.Value, o.Mutating.Value = o.ExpectedValidating.DeepCopy(), o.ExpectedMutating.DeepCopy()
	setBundles(o, authority)
	o.ServedCertificate.Value = served
	o.AdmissionPolicies.Value = append(o.AdmissionPolicies.Value, o.ExpectedAdmissionPolicies...)
	for i := range o.ExpectedAdmissionBindings {
		o.AdmissionBindings.Value = append(o.AdmissionBindings.Value, *o.ExpectedAdmissionBindings[i].DeepCopy())
	}
	o.Parameters.Value = admissionpolicy.NewParameters(v1alpha1.AdmissionParametersSpec{})
	o.Leases.Value = []coordinationv1.Lease{
		{ObjectMeta: metav1.ObjectMeta{Name: lifecycleLease}, Spec: coordinationv1.LeaseSpec{
			HolderIdentity: ptr.To("lifecycle-1"), RenewTime: &metav1.MicroTime{Time: testNow.Add(-2 * time.Second)},
		}},
	}
	pods := map[string]string{"app.kubernetes.io/name": "sluice-webhook"}
	o.Deployments.Value = []appsv1.Deployment{{
		ObjectMeta: metav1.ObjectMeta{Namespace: systemNamespace, Name: webhookName},
		Spec: appsv1.DeploymentSpec{Replicas: ptr.To(int32(2)), Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: pods}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Image: "sluice-webhook:" + testVersion}}},
		}},
		Status: appsv1.DeploymentStatus{AvailableReplicas: 2},
	}}
	o.Budgets.Value = []policyv1.PodDisruptionBudget{{Spec: policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: pods}}}}
	o.Endpoints.Value = []discoveryv1.EndpointSlice{{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{discoveryv1.LabelServiceName: webhookName}},
		Endpoints:  []discoveryv1.Endpoint{{Addresses: []string{"10.0.0.1"}}, {Addresses: []string{"10.0.0.2"}}},
	}}
	o.MailState.Value = &corev1.ConfigMap{Data: map[string]string{outbox.MailStateEnabledAtKey: "2026-10-01T08:00:00Z"}}
	o.NodePools.Value = []v1alpha1.NodePool{{
		ObjectMeta: metav1.ObjectMeta{Name: "dgx", Generation: 2},
		Spec:       v1alpha1.NodePoolSpec{NodeSelector: map[string]string{v1alpha1.LabelNodePool: "dgx"}, Scheduler: v1alpha1.SchedulerKueue},
		Status: v1alpha1.NodePoolStatus{ObservedGeneration: 2, Conditions: []metav1.Condition{
			{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue}, {Type: v1alpha1.ConditionUnsupported, Status: metav1.ConditionFalse},
		}},
	}}
	o.Nodes.Value = []corev1.Node{newGPUNode("dgx-1")}
	o.GPUNodes.Value = []v1alpha1.GPUNode{{
		ObjectMeta: metav1.ObjectMeta{Name: "dgx-1"},
		Status: v1alpha1.GPUNodeStatus{
			SampledAt:  &metav1.Time{Time: testNow.Add(-10 * time.Second)},
			GPUs:       []v1alpha1.ObservedGPU{{UUID: "GPU-0", Model: "A100"}, {UUID: "GPU-1", Model: "A100"}},
			Conditions: []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue}},
		},
	}}
	o.Policies.Value = []v1alpha1.Policy{newPolicy("core.gpu", func(p *v1alpha1.Policy) { p.Labels = map[string]string{v1alpha1.LabelBuiltIn: "true"} })}
	o.Departments.Value = []v1alpha1.Department{{ObjectMeta: metav1.ObjectMeta{Name: "research"}}}
	o.Projects.Value = []v1alpha1.Project{{
		ObjectMeta: metav1.ObjectMeta{Name: "lab"}, Spec: v1alpha1.ProjectSpec{Department: "research"},
		Status: v1alpha1.ProjectStatus{Conditions: []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue}}},
	}}
	o.Namespaces.Value = []corev1.Namespace{
		{ObjectMeta: metav1.ObjectMeta{Name: "kube-system", Labels: map[string]string{corev1.LabelMetadataName: "kube-system"}}},
		{ObjectMeta: metav1.ObjectMeta{Name: "lab", Labels: map[string]string{v1alpha1.LabelProject: "lab"}}},
		{ObjectMeta: metav1.ObjectMeta{Name: "old"}},
	}
	o.GPUPods.Value = []corev1.Pod{newGPUPod("lab", "train"), newGPUPod("gpu-operator", "validator")}
	o.WebhookProbe = Probe{Made: true, Latency: 12 * time.Millisecond, Err: errors.New(`admission webhook "projects.sluice.dev" denied the request: no department`)}
	o.OutsideProbe = Probe{Made: true, Warnings: []string{"Validation failed for ValidatingAdmissionPolicy 'sluice-gpu-pods' with binding 'sluice-gpu-pods'"}}
	return o
}

func newGPUNode(name string) corev1.Node {
	list := corev1.ResourceList{
		v1alpha1.ResourceNVIDIAGPU: resource.MustParse("2"), v1alpha1.ResourceGPUMilli: resource.MustParse("2000"),
		v1alpha1.GuaranteedMilli(v1alpha1.ResourceGPUMilliFor("dgx")): resource.MustParse("2000"),
	}
	return corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
			v1alpha1.LabelNodePool: "dgx", v1alpha1.LabelGPUProduct: "A100", v1alpha1.LabelGPUCount: "2", v1alpha1.LabelGPUMemory: "40960",
		}},
		Status: corev1.NodeStatus{Capacity: list, Allocatable: list.DeepCopy()},
	}
}

func newGPUPod(namespace, name string) corev1.Pod {
	return corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: corev1.PodSpec{Containers: []corev1.Container{{
		Name: "main", Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{v1alpha1.ResourceNVIDIAGPU: resource.MustParse("1")}},
	}}}}
}

func newPolicy(name string, change ...func(*v1alpha1.Policy)) v1alpha1.Policy {
	p := v1alpha1.Policy{ObjectMeta: metav1.ObjectMeta{Name: name, Generation: 1}, Status: v1alpha1.PolicyStatus{
		ObservedGeneration: 1, EnforcedGeneration: 1, Conditions: []metav1.Condition{
			{Type: v1alpha1.ConditionCompiled, Status: metav1.ConditionTrue}, {Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue},
		},
	}}
	for _, c := range change {
		c(&p)
	}
	return p
}

// setBundles sets the caBundle of all webhooks.
func setBundles(o *Observation, bundle []byte) {
	for i := range o.Validating.Value.Webhooks {
		o.Validating.Value.Webhooks[i].ClientConfig.CABundle = bundle
	}
	for i := range o.Mutating.Value.Webhooks {
		o.Mutating.Value.Webhooks[i].ClientConfig.CABundle = bundle
	}
}

// newCertificates returns an authority and a certificate that it issued, both in PEM form.
func newCertificates(t *testing.T, from, until time.Time) (authority, served []byte) {
	t.Helper()
	issue := func(template, parent *x509.Certificate, key, signer *ecdsa.PrivateKey) []byte {
		raw, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
		if err != nil {
			t.Fatal(err)
		}
		return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw})
	}
	newKey := func() *ecdsa.PrivateKey {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		return key
	}
	caKey, key := newKey(), newKey()
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority " + until.String()}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign, NotBefore: from, NotAfter: until.Add(365 * 24 * time.Hour),
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "webhook"}, DNSNames: []string{"webhook.sluice-system.svc"},
		NotBefore: from, NotAfter: until, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	return issue(ca, ca, caKey, caKey), issue(leaf, ca, key, caKey)
}

// findCheck returns the result of a check in a report.
func findCheck(t *testing.T, report Report, name string) CheckResult {
	t.Helper()
	for _, c := range report.Checks {
		if c.Name == name {
			return c
		}
	}
	t.Fatalf("no check %s", name)
	return CheckResult{}
}

// findingText is a finding as one line.
func findingText(f *Finding) string { return string(f.Result) + " " + f.Object + ": " + f.Message }

func allFindings(c CheckResult) string {
	var lines []string
	for i := range c.Findings {
		lines = append(lines, findingText(&c.Findings[i]))
	}
	return strings.Join(lines, "\n")
}

func setFailurePolicy(o *Observation, name string, policy admissionv1.FailurePolicyType) {
	for i := range o.Validating.Value.Webhooks {
		if o.Validating.Value.Webhooks[i].Name == name {
			o.Validating.Value.Webhooks[i].FailurePolicy = &policy
		}
	}
}
