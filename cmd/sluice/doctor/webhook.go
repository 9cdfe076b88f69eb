// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// slowProbe is the latency from which a request through the webhook is slow. Its timeout is 3 s.
const slowProbe = time.Second

// The names of Sluice's Deployments and DaemonSet.
const (
	webhookName   = "webhook"
	lifecycleName = "lifecycle"
	agentName     = "gpuagent"
)

const seeWebhook = "kubectl -n " + systemNamespace + " get pods,endpointslices -o wide, and kubectl -n " + systemNamespace +
	" logs deploy/" + webhookName + "; NetworkPolicies and firewalls must let the API server reach port 9443 of its pods"

// checkWebhookReachable evaluates the response to a Project without a department, which only the webhook refuses.
func checkWebhookReachable(o *Observation) (out outcome) {
	probe := o.WebhookProbe
	latency := probe.Latency.Round(time.Millisecond)
	const denied = `admission webhook "projects.sluice.dev" denied the request`
	switch message := errorText(probe.Err); {
	case !probe.Made:
		return skip("no request was made")
	case probe.Err == nil:
		out.add(Error, "", "no webhook answered to a Project that it must refuse: the API server does not call Sluice's webhook",
			"apply the manifests, and see the check webhook-configurations")
	case strings.Contains(message, denied):
		if latency >= slowProbe {
			out.add(Warning, "", fmt.Sprintf("the webhook answered through the API server after %s", latency),
				"see the load of the webhook's pods and nodes: the API server refuses pods of projects after 3s")
		}
	case strings.Contains(message, "failed calling webhook"):
		out.add(Error, "", fmt.Sprintf("the API server cannot call the webhook (after %s): %s; pods of projects are refused", latency, message), seeWebhook)
	case apierrors.IsForbidden(probe.Err) && !strings.Contains(message, "admission"):
		return skip("no right to create projects.sluice.dev (kubectl auth can-i create projects.sluice.dev); " +
			"the ClusterRole sluice:doctor grants it: the request is a dry run, and the webhook refuses it")
	default:
		return skip("the request was refused before the webhook was called: %s", message)
	}
	out.ok = fmt.Sprintf("the webhook answered through the API server after %s", latency)
	return out
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// runsOutsidePods reports that a component is no Deployment, as on an embedded cluster whose components are processes.
func (o *Observation) runsOutsidePods(name string) bool {
	return o.Embedded && o.deployment(name) == nil
}

// checkWebhookReplicas checks the replicas by their Deployment, disruption budget and endpoints.
func checkWebhookReplicas(o *Observation) (out outcome) {
	if reason := firstUnread(o.Deployments, o.Budgets, o.Endpoints); reason != "" {
		return skip("%s", reason)
	}
	if o.runsOutsidePods(webhookName) {
		return skip("it runs outside of pods, so that this command does not see its replicas")
	}
	ready := readyEndpoints(o.Endpoints.Value)
	out.ok = fmt.Sprintf("ready replicas: %d", ready)
	deployment := o.deployment(webhookName)
	checkDeployment(&out, deployment, webhookName)
	if deployment == nil {
		return out
	}
	pods := labels.Set(deployment.Spec.Template.Labels)
	hasBudget := false
	for i := range o.Budgets.Value {
		selector, err := metav1.LabelSelectorAsSelector(o.Budgets.Value[i].Spec.Selector)
		hasBudget = hasBudget || err == nil && selector.Matches(pods)
	}
	if !hasBudget && replicasOf(deployment) > 1 {
		out.add(Warning, "", "no PodDisruptionBudget covers the webhook's pods: a drain of nodes may stop all of them at once",
			"apply the manifests, which have the PodDisruptionBudget webhook")
	}
	if ready == 0 {
		out.add(Error, "Service "+systemNamespace+"/"+webhookName, "it has no ready endpoint, so that the API server reaches no replica", seeWebhook)
	}
	return out
}

func replicasOf(d *appsv1.Deployment) int32 {
	if d.Spec.Replicas == nil {
		return 1
	}
	return *d.Spec.Replicas
}

// checkDeployment adds what is wrong with one of Sluice's Deployments; deployment is nil if it is missing.
func checkDeployment(out *outcome, deployment *appsv1.Deployment, name string) {
	object := "Deployment " + systemNamespace + "/" + name
	switch {
	case deployment == nil:
		out.add(Error, object, "it does not exist", "apply the manifests or the chart")
	case replicasOf(deployment) == 0:
		out.add(Error, object, "it is scaled to 0 replicas", fmt.Sprintf("kubectl -n %s scale deploy/%s --replicas=2", systemNamespace, name))
	case deployment.Status.AvailableReplicas == 0:
		out.add(Error, object, fmt.Sprintf("none of %d replicas is available", replicasOf(deployment)),
			fmt.Sprintf("kubectl -n %[1]s describe deploy/%[2]s, and kubectl -n %[1]s logs deploy/%[2]s", systemNamespace, name))
	case deployment.Status.AvailableReplicas < replicasOf(deployment):
		out.add(Warning, object, fmt.Sprintf("%d of %d replicas are available", deployment.Status.AvailableReplicas, replicasOf(deployment)),
			fmt.Sprintf("kubectl -n %s describe deploy/%s", systemNamespace, name))
	}
}

func readyEndpoints(slices []discoveryv1.EndpointSlice) (ready int) {
	for i := range slices {
		if slices[i].Labels[discoveryv1.LabelServiceName] != webhookName {
			continue
		}
		for _, endpoint := range slices[i].Endpoints {
			if endpoint.Conditions.Ready == nil || *endpoint.Conditions.Ready {
				ready += len(endpoint.Addresses)
			}
		}
	}
	return ready
}

// lifecycleLease is the Lease of lifecycle's leader.
const lifecycleLease = "sluice-lifecycle"

// leaseTolerance covers clocks that differ between this machine and the cluster.
const leaseTolerance = time.Minute

// checkLifecycle checks that a replica of lifecycle leads.
func checkLifecycle(o *Observation) (out outcome) {
	if reason := firstUnread(o.Leases, o.Deployments); reason != "" {
		return skip("%s", reason)
	}
	if !o.runsOutsidePods(lifecycleName) {
		checkDeployment(&out, o.deployment(lifecycleName), lifecycleName)
	}
	const seeLogs = "kubectl -n " + systemNamespace + " logs deploy/" + lifecycleName
	at := slices.IndexFunc(o.Leases.Value, func(l coordinationv1.Lease) bool { return l.Name == lifecycleLease })
	if at < 0 {
		if o.runsOutsidePods(lifecycleName) {
			return skip("it runs outside of pods and without a Lease, so that this command does not see it")
		}
		if d := o.deployment(lifecycleName); d != nil && replicasOf(d) == 1 {
			out.ok = "its one replica is available, without leader election"
			return out
		}
		if len(out.findings) == 0 {
			out.add(Warning, "Lease "+systemNamespace+"/"+lifecycleLease, "it does not exist: no replica of lifecycle ever led", seeLogs)
		}
		return out
	}
	lease := &o.Leases.Value[at]
	holder := valueOr(lease.Spec.HolderIdentity, "")
	if lease.Spec.RenewTime == nil || holder == "" { // the last leader released it when it ended
		out.add(Error, "Lease "+systemNamespace+"/"+lifecycleLease, "no replica of lifecycle holds it; if one was just replaced, try again", seeLogs)
		return out
	}
	if age := o.Now.Sub(lease.Spec.RenewTime.Time); age > leaseTolerance {
		out.add(Error, "Lease "+systemNamespace+"/"+lifecycleLease, fmt.Sprintf(
			"no replica of lifecycle has renewed it for %s: no limit, expiry or mail is enforced", age.Round(time.Second)), seeLogs)
		return out
	}
	out.ok = "leader: " + holder
	return out
}
