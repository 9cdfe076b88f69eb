// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/cmd/sluice/printer"
	"sluice.dev/cmd/sluice/submission"
	"sluice.dev/cmd/sluice/workloads"
)

func newDeleteCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "delete NAME...",
		Short: "Delete workloads, with the Service and the Ingress that submit made for them",
		Long: `Delete workloads and their pods, and the Services and Ingresses that sluice submit made for
them. Volume claims stay, with their data: kubectl delete pvc removes them.`,
		Example: `  # Delete a workload
  sluice delete training

  # Delete two workloads of a project
  sluice delete job/training deployment/notebook -p thesis-mueller`,
		Args: cobra.MinimumNArgs(1),
	}
	flags := addWorkloadFlags(cmd, namespaceScope)
	cmd.ValidArgsFunction = flags.completeWorkloads
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return flags.forEachWorkload(cmd, args, func(ctx context.Context, c *workloadClient, w *workloads.Workload) error {
			return deleteWorkload(ctx, c, w, cmd.OutOrStdout())
		})
	}
	return cmd
}

// deleteWorkload deletes a workload, then what submit made for it. It deletes no object that has its name now.
func deleteWorkload(ctx context.Context, c client.Client, w *workloads.Workload, output io.Writer) error {
	uid := w.Object.GetUID()
	err := c.Delete(ctx, w.Object, client.Preconditions{UID: &uid}, client.PropagationPolicy(metav1.DeletePropagationBackground))
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete %s: %w", referenceText(w), err)
	}
	fmt.Fprintf(output, "%s deleted\n", referenceText(w))
	if len(validation.IsValidLabelValue(w.Object.GetName())) > 0 {
		return nil // submit makes no such name
	}
	others, err := submittedAs(ctx, c, w.Object.GetNamespace(), w.Object.GetName())
	if err != nil {
		return err
	}
	if others = slices.DeleteFunc(others, func(other string) bool { return other == referenceText(w) }); len(others) > 0 {
		fmt.Fprintf(output, "Its Services and Ingresses stay: %s has the same name\n", printer.Sanitize(others[0]))
		return nil
	}
	made := []client.ListOption{
		client.InNamespace(w.Object.GetNamespace()),
		client.MatchingLabels{submission.LabelInstance: w.Object.GetName(), v1alpha1.LabelManagedBy: submission.ManagedBy},
	}
	var services corev1.ServiceList
	var ingresses networkingv1.IngressList
	for _, list := range []client.ObjectList{&ingresses, &services} {
		if err := c.List(ctx, list, made...); err != nil && !apierrors.IsForbidden(err) {
			return fmt.Errorf("list what submit made for %s: %w", referenceText(w), err)
		}
	}
	var objects []client.Object
	for i := range ingresses.Items {
		objects = append(objects, &ingresses.Items[i])
	}
	for i := range services.Items {
		objects = append(objects, &services.Items[i])
	}
	for _, object := range objects {
		kind := "service"
		if _, isIngress := object.(*networkingv1.Ingress); isIngress {
			kind = "ingress"
		}
		uid := object.GetUID()
		if err := c.Delete(ctx, object, client.Preconditions{UID: &uid}); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("delete %s %s: %w", kind, object.GetName(), err)
		}
		fmt.Fprintf(output, "%s/%s deleted\n", kind, printer.Sanitize(object.GetName()))
	}
	return nil
}

func newCloneCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "clone NAME NEW",
		Short: "Start a copy of a workload under another name",
		Long: `Create a copy of a workload under another name in the same namespace: with its images,
commands and requests, and without its status and what Sluice and Kubernetes wrote. It is
yours, also if another user created the original, and a copy of a stopped workload runs. It uses the same
volume claims and Secrets. Services and Ingresses are not copied. It keeps the clock's rules:
a copy of a workload that Sluice stopped at its limit may be refused until this may start.`,
		Example: `  # Start a copy
  sluice clone training training-2

  # Print the copy, to change it before it is created
  sluice clone training training-2 --dry-run=client -o yaml`,
		Args: cobra.ExactArgs(2),
	}
	flags := addWorkloadFlags(cmd, namespaceScope)
	creation := addCreationFlags(cmd)
	cmd.ValidArgsFunction = flags.completeWorkload
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if problems := validation.IsDNS1123Subdomain(args[1]); len(problems) > 0 {
			return fmt.Errorf("%q is no name of a workload: %s", args[1], strings.Join(problems, "; "))
		}
		c, w, err := flags.findWorkload(cmd, args[0])
		if err != nil {
			return err
		}
		copied, err := w.Copy(args[1])
		if err != nil {
			return err
		}
		return creation.run(cmd, c, []*unstructured.Unstructured{copied}, nextSteps(copied.GetName(), copied.GetNamespace(), false))
	}
	return cmd
}
