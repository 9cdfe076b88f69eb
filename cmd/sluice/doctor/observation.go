// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	policyv1 "k8s.io/api/policy/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"

	"sluice.dev/api/v1alpha1"
)

// Read is a value that was read from the cluster, or the error.
type Read[T any] struct {
	Value T
	// What names the read, as `kubectl auth can-i` does: "list nodes".
	What string
	Err  error
}

// unread returns why a value is missing, or "".
func (r Read[T]) unread() string {
	switch {
	case r.Err == nil:
		return ""
	case apierrors.IsForbidden(r.Err) || apierrors.IsUnauthorized(r.Err):
		grants := "; the ClusterRole sluice:doctor grants it"
		if strings.HasPrefix(r.What, "get secrets/") {
			grants = ", which no role of Sluice grants"
		}
		return fmt.Sprintf("no right to %s (kubectl auth can-i %s)%s", r.What, r.What, grants)
	case meta.IsNoMatchError(r.Err):
		return fmt.Sprintf("could not %s: the API server does not serve the kind", r.What)
	}
	return fmt.Sprintf("could not %s: %v", r.What, r.Err)
}

// unreader is any Read.
type unreader interface{ unread() string }

// firstUnread returns why one of the reads failed, or "".
func firstUnread(reads ...unreader) string {
	for _, r := range reads {
		if reason := r.unread(); reason != "" {
			return reason
		}
	}
	return ""
}

// Namespaces of Sluice's workloads. The agent has one of its own, because Pod Security is enforced by namespace.
const (
	systemNamespace = v1alpha1.SystemNamespace
	agentNamespace  = v1alpha1.AgentNamespace
)

// Observation is all that the checks know about a cluster.
type Observation struct {
	// CLIVersion is the version of this program.
	CLIVersion string
	Server     string
	// Now is machine time, and PolicyNow policy time.
	Now, PolicyNow time.Time
	// Embedded: the cluster is one of `sluice up`, whose components may run outside of pods.
	Embedded bool

	// Kubernetes is the version of the API server, and Resources what it serves, as "group/version/resource".
	Kubernetes Read[string]
	Resources  Read[map[string]bool]

	CRDs         Read[[]apiextensionsv1.CustomResourceDefinition]
	ExpectedCRDs []apiextensionsv1.CustomResourceDefinition

	Validating         Read[*admissionv1.ValidatingWebhookConfiguration]
	Mutating           Read[*admissionv1.MutatingWebhookConfiguration]
	ExpectedValidating *admissionv1.ValidatingWebhookConfiguration
	ExpectedMutating   *admissionv1.MutatingWebhookConfiguration

	AdmissionPolicies         Read[[]admissionv1.ValidatingAdmissionPolicy]
	AdmissionBindings         Read[[]admissionv1.ValidatingAdmissionPolicyBinding]
	ExpectedAdmissionPolicies []admissionv1.ValidatingAdmissionPolicy
	ExpectedAdmissionBindings []admissionv1.ValidatingAdmissionPolicyBinding
	Parameters                Read[*v1alpha1.AdmissionParameters]

	// Leases, Deployments, Budgets and Endpoints are those of sluice-system, DaemonSets those of sluice-agent and
	// sluice-system.
	Leases      Read[[]coordinationv1.Lease]
	Deployments Read[[]appsv1.Deployment]
	DaemonSets  Read[[]appsv1.DaemonSet]
	Budgets     Read[[]policyv1.PodDisruptionBudget]
	Endpoints   Read[[]discoveryv1.EndpointSlice]
	// ServedCertificate has the webhook's certificates in PEM form: those of its Secret, or those that it serves.
	ServedCertificate Read[[]byte]
	MailState         Read[*corev1.ConfigMap]
	// LifecycleConfig is the ConfigMap with lifecycle's configuration; nil if lifecycle reads another file.
	LifecycleConfig Read[*corev1.ConfigMap]
	StopLimiter     Read[*corev1.ConfigMap]

	Namespaces Read[[]corev1.Namespace]
	Nodes      Read[[]corev1.Node]
	// GPUPods are the pods that request a GPU and have not ended.
	GPUPods Read[[]corev1.Pod]
	// UnlistedPods are the pods of projects that request what nodes of a pool offer and no list knows. They are read with
	// GPUPods.
	UnlistedPods []corev1.Pod

	Departments Read[[]v1alpha1.Department]
	Projects    Read[[]v1alpha1.Project]
	NodePools   Read[[]v1alpha1.NodePool]
	GPUNodes    Read[[]v1alpha1.GPUNode]
	Policies    Read[[]v1alpha1.Policy]
	Clocks      Read[[]v1alpha1.WorkloadClock]
	Notices     Read[[]v1alpha1.Notice]

	// WebhookProbe and OutsideProbe are the results of requests with dryRun=All.
	WebhookProbe Probe
	OutsideProbe Probe
}

// Probe is the response to a request that changes nothing.
type Probe struct {
	// Made is false if the request was not sent.
	Made bool
	// Err is the error of the API server; nil if it accepted the object.
	Err error
	// Warnings are the warnings of the response.
	Warnings []string
	// Latency is the time of the request.
	Latency time.Duration
}

// isInstalled reports whether one of Sluice's kinds exists.
func (o *Observation) isInstalled() bool {
	for i := range o.CRDs.Value {
		if o.CRDs.Value[i].Spec.Group == v1alpha1.Group {
			return true
		}
	}
	for resource := range o.Resources.Value {
		if strings.HasPrefix(resource, v1alpha1.Group+"/") {
			return true
		}
	}
	return false
}

// mayBeInstalled is true also if that cannot be read.
func (o *Observation) mayBeInstalled() bool {
	return o.isInstalled() || o.Resources.Err != nil
}

func (o *Observation) deployment(name string) *appsv1.Deployment {
	for i := range o.Deployments.Value {
		if o.Deployments.Value[i].Name == name {
			return &o.Deployments.Value[i]
		}
	}
	return nil
}
