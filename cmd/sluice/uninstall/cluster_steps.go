// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package uninstall

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/manifests"
)

// componentNamespaces have Sluice's own pods. Older installations run the agent in the first.
var componentNamespaces = []string{v1alpha1.SystemNamespace, v1alpha1.AgentNamespace}

const admissionGroup = "admissionregistration.k8s.io"

// The shipped objects, those of the agent included, and those of Sluice's kinds. A plan reads them several times.
var (
	buildShipped = sync.OnceValues(func() ([]*unstructured.Unstructured, error) { return manifests.Build(manifests.Production) })
	buildCRDs    = sync.OnceValues(func() ([]*unstructured.Unstructured, error) { return manifests.Build("crds") })
)

// findWebhooks finds the webhook configurations of the manifests, and those that the installation labeled as Sluice's.
func (u *Uninstaller) findWebhooks(ctx context.Context) ([]action, error) {
	return u.findOfManifests(ctx, admissionGroup, "ValidatingWebhookConfiguration", "MutatingWebhookConfiguration")
}

// findAdmissionPolicies finds the bindings before the policies: a policy without a binding does nothing.
func (u *Uninstaller) findAdmissionPolicies(ctx context.Context) ([]action, error) {
	return u.findOfManifests(ctx, admissionGroup, "ValidatingAdmissionPolicyBinding", "ValidatingAdmissionPolicy",
		"MutatingAdmissionPolicyBinding", "MutatingAdmissionPolicy")
}

// findOfManifests finds the objects of kinds that Sluice's manifests have, or that lifecycle applied.
func (u *Uninstaller) findOfManifests(ctx context.Context, group string, kinds ...string) (actions []action, err error) {
	shipped, err := buildShipped()
	if err != nil {
		return nil, err
	}
	for _, kind := range kinds {
		err := u.list(ctx, schema.GroupKind{Group: group, Kind: kind}, func(o *unstructured.Unstructured) {
			isShipped := slices.ContainsFunc(shipped, func(s *unstructured.Unstructured) bool {
				return s.GetKind() == kind && s.GetNamespace() == o.GetNamespace() && s.GetName() == o.GetName()
			})
			if isShipped || o.GetLabels()[v1alpha1.LabelManagedBy] == v1alpha1.ManagedBySluice {
				actions = append(actions, u.remove(o))
			}
		})
		if err != nil {
			return nil, err
		}
	}
	return actions, nil
}

// serverNames are the names of the Deployments and of the DaemonSet, and componentNames also that of the CronJob, whose pod may never start.
var serverNames, componentNames = []string{"webhook", "lifecycle", "gpuagent"}, []string{"webhook", "lifecycle", "gpuagent", "certificates"}

func (u *Uninstaller) findComponents(ctx context.Context) (actions []action, err error) {
	for _, namespace := range componentNamespaces {
		for _, kind := range []schema.GroupKind{
			{Group: "apps", Kind: "Deployment"}, {Group: "apps", Kind: "DaemonSet"}, {Group: "batch", Kind: "CronJob"},
		} {
			err := u.list(ctx, kind, func(o *unstructured.Unstructured) {
				if slices.Contains(componentNames, componentOf(o)) {
					actions = append(actions, u.remove(o))
				}
			}, client.InNamespace(namespace))
			if err != nil {
				return nil, err
			}
		}
	}
	return actions, nil
}

// componentOf returns the component that an object in Sluice's namespaces is, or of which it is a pod: one of componentNames, if any.
func componentOf(o *unstructured.Unstructured) string {
	return strings.TrimPrefix(cmp.Or(o.GetLabels()["app.kubernetes.io/name"], o.GetName()), "sluice-")
}

// waitForComponents returns when no pod of a server exists. It does not wait for terminating pods of nodes that are not
// ready: their kubelets cannot report the end, and one dead node must not prevent the removal.
func (u *Uninstaller) waitForComponents(ctx context.Context) error {
	var unreported []string
	err := u.waitFor(ctx, func(ctx context.Context) (waiting string, err error) {
		ready, err := u.readyNodes(ctx)
		if err != nil {
			return "", err
		}
		unreported = nil
		for _, namespace := range componentNamespaces {
			err := u.list(ctx, schema.GroupKind{Kind: "Pod"}, func(o *unstructured.Unstructured) {
				phase, _, _ := unstructured.NestedString(o.Object, "status", "phase")
				node, _, _ := unstructured.NestedString(o.Object, "spec", "nodeName")
				switch {
				case !slices.Contains(serverNames, componentOf(o)) || phase == string(corev1.PodSucceeded) || phase == string(corev1.PodFailed):
				case o.GetDeletionTimestamp() != nil && node != "" && !ready[node]:
					unreported = append(unreported, fmt.Sprintf("%s/%s: node %s is not ready", namespace, o.GetName(), node))
				default:
					waiting = "the end of pod " + namespace + "/" + o.GetName()
				}
			}, client.InNamespace(namespace))
			if err != nil || waiting != "" {
				return waiting, err
			}
		}
		return "", nil
	})
	if err == nil && len(unreported) > 0 {
		fmt.Fprintf(u.Out, "  not waiting for pods whose end no kubelet reports; they end when their node is back or removed:\n    %s\n",
			strings.Join(unreported, "\n    "))
	}
	return err
}

// readyNodes returns the nodes whose kubelets report.
func (u *Uninstaller) readyNodes(ctx context.Context) (map[string]bool, error) {
	ready := map[string]bool{}
	err := u.list(ctx, schema.GroupKind{Kind: "Node"}, func(o *unstructured.Unstructured) {
		conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
		for _, c := range conditions {
			condition, _ := c.(map[string]any)
			if condition["type"] == string(corev1.NodeReady) && condition["status"] == string(corev1.ConditionTrue) {
				ready[o.GetName()] = true
			}
		}
	})
	return ready, err
}

// renderedKinds are the kinds of what lifecycle renders and what can block or hold work, beside quotas: a LimitRange, and
// Kueue's queues, whose quota no new pod template has. Each comes before those to which it refers.
var renderedKinds = []schema.GroupKind{
	{Kind: "LimitRange"},
	{Group: "kueue.x-k8s.io", Kind: "LocalQueue"},
	{Group: "kueue.x-k8s.io", Kind: "ClusterQueue"},
	{Group: "kueue.x-k8s.io", Kind: "Cohort"},
	{Group: "kueue.x-k8s.io", Kind: "ResourceFlavor"},
}

// findRendered finds the quotas of projects, which count a resource that is gone, and of Sluice's own namespaces, and the
// objects of renderedKinds.
func (u *Uninstaller) findRendered(ctx context.Context) (actions []action, err error) {
	if actions, err = u.findOfManifests(ctx, "", "ResourceQuota"); err != nil {
		return nil, err
	}
	for _, kind := range renderedKinds {
		err := u.list(ctx, kind, func(o *unstructured.Unstructured) {
			if o.GetDeletionTimestamp() == nil { // else Kueue keeps it until its work ended
				actions = append(actions, u.remove(o))
			}
		}, managedByLifecycle)
		if err != nil {
			return nil, err
		}
	}
	return actions, nil
}

// agentConstraints are the SecurityContextConstraints of the agent on OpenShift, which name its ServiceAccount.
const agentConstraints = "sluice-gpuagent"

// findComponentRights finds the bindings whose subjects are only components, and the agent's SecurityContextConstraints.
func (u *Uninstaller) findComponentRights(ctx context.Context) (actions []action, err error) {
	for _, kind := range []string{"ClusterRoleBinding", "RoleBinding"} {
		err := u.list(ctx, schema.GroupKind{Group: rbacv1.GroupName, Kind: kind}, func(o *unstructured.Unstructured) {
			subjects, _, _ := unstructured.NestedSlice(o.Object, "subjects")
			isOurs := func(s any) bool {
				subject, _ := s.(map[string]any)
				namespace, _ := subject["namespace"].(string)
				name, _ := subject["name"].(string)
				return subject["kind"] == rbacv1.ServiceAccountKind && slices.Contains(componentNamespaces, namespace) && slices.Contains(componentNames, name)
			}
			if len(subjects) > 0 && !slices.ContainsFunc(subjects, func(s any) bool { return !isOurs(s) }) {
				actions = append(actions, u.remove(o))
			}
		})
		if err != nil {
			return nil, err
		}
	}
	constraints := schema.GroupKind{Group: "security.openshift.io", Kind: "SecurityContextConstraints"}
	err = u.list(ctx, constraints, func(o *unstructured.Unstructured) {
		if o.GetName() == agentConstraints {
			actions = append(actions, u.remove(o))
		}
	})
	return actions, err
}

// hookRights is the name of the bindings of the hook that runs this program.
const hookRights = "sluice-uninstall"

// findHookRights finds the bindings of the hook. They go last, since this program may run with them: they would stay if Helm was
// interrupted while the hook ran. The ClusterRoleBinding grants the deletion of both.
func (u *Uninstaller) findHookRights(ctx context.Context) (actions []action, err error) {
	for _, kind := range []string{"RoleBinding", "ClusterRoleBinding"} {
		namespace := ""
		if kind == "RoleBinding" {
			namespace = v1alpha1.SystemNamespace
		}
		err := u.list(ctx, schema.GroupKind{Group: rbacv1.GroupName, Kind: kind}, func(o *unstructured.Unstructured) {
			if o.GetName() == hookRights && o.GetNamespace() == namespace {
				actions = append(actions, u.remove(o))
			}
		})
		if err != nil {
			return nil, err
		}
	}
	return actions, nil
}
