// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package uninstall

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workloadkind"
)

// Remain is something that stays in the cluster.
type Remain struct{ What, Why string }

// Remains is the list of what stays. The documentation has the same.
var Remains = []Remain{
	{"workloads, pods, volumes and their namespaces", "they are the users'; pods keep the labels, requests and priority with which they were admitted"},
	{"MIG layouts and modes of GPUs", "pods use them, and no program changes them any more"},
	{"Sluice's kinds and objects: Projects, Departments, NodePools, Policies, records", "another installation continues with them; --delete-data deletes them"},
	{"the namespaces sluice-system and sluice-agent, with their Services, Secrets and ConfigMaps", "they hold the state of mail and of the stop limiter; --delete-data deletes them"},
	{"the roles and role bindings of members", "people keep access to their namespaces; --delete-data deletes them"},
	{"the ServiceAccounts and ClusterRoles of the components", "no binding and no SecurityContextConstraints give them rights"},
	{"the PriorityClasses sluice-*", "pod templates may name them; without them the API server would refuse such pods"},
	{"KAI's queues, and NetworkPolicies that policies rendered", "pending pods wait in these queues; without these policies namespaces would be open"},
	{"the labels and annotations of Sluice on nodes, workloads and namespaces that bind nothing", "sluice.dev/node-pool is the administrators'; sluice.dev/created-for and sluice.dev/former-project tell another installation what is its own"},
	{"Reports of the audit, if OpenReports is installed", "they are a record; `kubectl delete reports.openreports.io -A -l app.kubernetes.io/managed-by=sluice` deletes them"},
	{"the GPU quota unit on nodes, while unfinished work requests it", "such pods could not start without it; run this command again when they are done"},
}

// quotaUnit begins the names of the GPU quota units.
var quotaUnit = string(v1alpha1.ResourceGPUMilli)

// capacityIsNeeded returns work that requests the GPU quota unit and may still create or bind pods; empty if there is none.
func (u *Uninstaller) capacityIsNeeded(ctx context.Context) (work string, err error) {
	found := func(o *unstructured.Unstructured) {
		spec, err := json.Marshal(o.Object["spec"])
		if err == nil && strings.Contains(string(spec), `"`+quotaUnit) {
			work = describe(o)
		}
	}
	err = u.list(ctx, schema.GroupKind{Kind: "Pod"}, func(o *unstructured.Unstructured) {
		node, _, _ := unstructured.NestedString(o.Object, "spec", "nodeName")
		phase, _, _ := unstructured.NestedString(o.Object, "status", "phase")
		if node == "" && phase == string(corev1.PodPending) && o.GetDeletionTimestamp() == nil {
			found(o)
		}
	})
	if err != nil || work != "" {
		return work, err
	}
	for _, kind := range workloadkind.All() {
		if !kind.KueueCountsTemplates { // else the webhook changed no template
			continue
		}
		err := u.list(ctx, kind.GroupKind, func(o *unstructured.Unstructured) {
			if !kind.IsFinished(o) {
				found(o)
			}
		})
		if err != nil || work != "" {
			return work, err
		}
	}
	return "", nil
}

// printRemains prints what stays, and the stopped work with the command that starts it.
func (u *Uninstaller) printRemains(ctx context.Context) error {
	fmt.Fprintln(u.Out, "What stays:")
	for _, r := range Remains {
		fmt.Fprintf(u.Out, "  - %s: %s\n", r.What, r.Why)
	}
	needed, err := u.capacityIsNeeded(ctx)
	if err != nil {
		return err
	}
	if needed != "" {
		fmt.Fprintf(u.Out, "The GPU quota unit stays on the nodes for now: %s requests it.\n", needed)
	}
	stopped, err := u.findStopped(ctx)
	if err != nil {
		return err
	}
	if len(stopped) > 0 {
		fmt.Fprintln(u.Out, "Stopped work does not start by itself. The command for each:")
		for _, line := range stopped {
			fmt.Fprintf(u.Out, "  %s\n", line)
		}
	}
	return nil
}

// findStopped returns the workloads that Sluice stopped or that wait in a queue that is gone, each with the command that starts it.
func (u *Uninstaller) findStopped(ctx context.Context) (lines []string, err error) {
	for _, kind := range workloadkind.All() {
		if kind.Kind == "Pod" {
			continue
		}
		err := u.list(ctx, kind.GroupKind, func(o *unstructured.Unstructured) {
			_, stopped := workloadkind.ParseStoppedUntil(o)
			queue := o.GetLabels()[v1alpha1.LabelKueueQueue]
			suspended, _, _ := unstructured.NestedBool(o.Object, "spec", "suspend")
			if kind.IsFinished(o) || !stopped && (queue == "" || !kind.KueueManaged || !suspended) {
				return
			}
			command := kind.ForObject(o).StartCommand(o.GetNamespace(), o.GetName(), workloadkind.PreviousReplicas(o))
			switch {
			case command == "":
				command = "create it again"
			case queue != "" && kind.KueueManaged: // Kueue would hold it in a queue that is gone
				command = fmt.Sprintf("kubectl label %s.%s %s -n %s %s- && %s", kind.Resource, kind.Group, o.GetName(), o.GetNamespace(), v1alpha1.LabelKueueQueue, command)
			}
			lines = append(lines, fmt.Sprintf("%s: %s", describe(o), strings.ReplaceAll(command, "\n", " ")))
		})
		if err != nil {
			return nil, err
		}
	}
	err = u.list(ctx, schema.GroupKind{Kind: "Pod"}, func(o *unstructured.Unstructured) {
		gates, _, _ := unstructured.NestedSlice(o.Object, "spec", "schedulingGates")
		for _, gate := range gates {
			if entry, ok := gate.(map[string]any); !ok || entry["name"] != v1alpha1.GateKueue {
				continue
			}
			how := "create it again without the label " + v1alpha1.LabelKueueQueue
			if len(o.GetOwnerReferences()) > 0 {
				how = fmt.Sprintf("remove the label %s from the pod template of its controller, if it is there; then kubectl delete pod %s -n %s",
					v1alpha1.LabelKueueQueue, o.GetName(), o.GetNamespace())
			}
			lines = append(lines, describe(o)+": "+how)
		}
	})
	return lines, err
}
