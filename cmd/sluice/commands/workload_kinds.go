// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workloadkind"
	"sluice.dev/lifecycle/registration"
)

const workloadKindsHelp = `Add kinds that Sluice does not know and that create pods, or remove them.

Policies evaluate the pod templates of an added kind, and its creator is recorded. That needs the setting podTemplates
of the AdmissionParameters, and a rule in both webhook configurations, which no program of Sluice may write:
the commands do, with your rights.`

func newWorkloadKindsAddCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "add KIND.GROUP --resource PLURAL --path PATH",
		Short: "Add a kind that creates pods, or replace its paths",
		Long: `Add a kind that creates pods, or replace its paths.

The command prints the setting and the rules of all added kinds as YAML, for kubectl apply --server-side. Nothing is
changed in the cluster without --apply. sluice doctor compares both.`,
		Example: `  # Print what the kind Trainer needs
  sluice workload-kinds add Trainer.ml.example.org --resource trainers --path "spec.workers[*].template"

  # Apply it
  sluice workload-kinds add Trainer.ml.example.org --resource trainers --path "spec.workers[*].template" --apply`,
		Args: cobra.ExactArgs(1),
	}
	var added v1alpha1.PodTemplates
	cmd.Flags().StringVar(&added.Resource, "resource", "", "Plural of the kind in the API, such as trainers (required)")
	cmd.Flags().StringArrayVar(&added.Paths, "path", nil,
		"Path of a pod template, such as spec.template or spec.workers[*].template; may be repeated (required)")
	cmd.Flags().StringVar(&added.Version, "version", "", "API version that the paths are of (default: all)")
	return withWorkloadKinds(cmd, func(kind string, present []v1alpha1.PodTemplates) ([]v1alpha1.PodTemplates, error) {
		added.Kind = kind
		if err := checkWorkloadKind(&added); err != nil {
			return nil, err
		}
		if at := slices.IndexFunc(present, func(p v1alpha1.PodTemplates) bool { return p.Kind == kind }); at >= 0 {
			return slices.Replace(slices.Clone(present), at, at+1, added), nil
		}
		return append(slices.Clone(present), added), nil
	})
}

func newWorkloadKindsRemoveCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "remove KIND.GROUP",
		Short: "Remove a kind that was added",
		Long: `Remove a kind that was added.

The command prints the setting and the rules of the other kinds as YAML. Nothing is changed in the cluster without
--apply.`,
		Example: `  # Remove the kind Trainer
  sluice workload-kinds remove Trainer.ml.example.org --apply`,
		Args: cobra.ExactArgs(1),
	}
	return withWorkloadKinds(cmd, func(kind string, present []v1alpha1.PodTemplates) ([]v1alpha1.PodTemplates, error) {
		rest := slices.DeleteFunc(slices.Clone(present), func(p v1alpha1.PodTemplates) bool { return p.Kind == kind })
		if len(rest) == len(present) {
			return nil, fmt.Errorf("%s: podTemplates of the AdmissionParameters has no such kind", kind)
		}
		return rest, nil
	})
}

// checkWorkloadKind returns why a kind cannot be added. The API server checks it again.
func checkWorkloadKind(added *v1alpha1.PodTemplates) error {
	if added.Resource == "" || len(added.Paths) == 0 {
		return errors.New("--resource, --path: required; name the plural of the kind in the API, and its pod templates")
	}
	for _, path := range added.Paths {
		if _, err := workloadkind.ParseTemplatePath(path); err != nil {
			return fmt.Errorf("--path %w", err)
		}
	}
	if len(workloadkind.NewAddedTemplates([]v1alpha1.PodTemplates{*added})) == 0 {
		return fmt.Errorf("%s: must be a kind with its API group, such as Trainer.ml.example.org, "+
			"whose templates Sluice does not evaluate yet", added.Kind)
	}
	return nil
}

// withWorkloadKinds makes a command print or apply what change makes of the added kinds.
func withWorkloadKinds(
	cmd *cobra.Command, change func(kind string, present []v1alpha1.PodTemplates) ([]v1alpha1.PodTemplates, error),
) *cobra.Command {
	cluster := addClusterFlags(cmd, clusterScope)
	apply := cmd.Flags().Bool("apply", false, "Apply the setting and the rules, with your rights")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, err := cluster.connect(cmd)
		if err != nil {
			return err
		}
		var parameters v1alpha1.AdmissionParameters
		err = c.Get(cmd.Context(), client.ObjectKey{Name: v1alpha1.AdmissionParametersName}, &parameters)
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("read the AdmissionParameters: %w", err)
		}
		kinds, err := change(args[0], parameters.Spec.PodTemplates)
		if err != nil {
			return err
		}
		objects := workloadKindObjects(kinds)
		if !*apply {
			return printWorkloadKinds(cmd.OutOrStdout(), objects)
		}
		return applyWorkloadKinds(cmd.Context(), c, cmd.OutOrStdout(), objects, len(kinds))
	}
	return cmd
}

// workloadKindObjects returns what added kinds need: the setting, and the rules of the webhooks that are for them.
func workloadKindObjects(kinds []v1alpha1.PodTemplates) []*unstructured.Unstructured {
	rules, setting := workloadkind.AddedRules(kinds), map[string]any{}
	if len(kinds) > 0 {
		setting["podTemplates"] = kinds
	}
	object := func(apiVersion, kind, field string, value any) *unstructured.Unstructured {
		raw, err := yaml.Marshal(map[string]any{
			"apiVersion": apiVersion, "kind": kind, "metadata": map[string]any{"name": registration.Name}, field: value,
		})
		content := map[string]any{}
		if err == nil {
			err = yaml.Unmarshal(raw, &content)
		}
		if err != nil {
			panic(err) // values of the API always marshal
		}
		return &unstructured.Unstructured{Object: content}
	}
	webhooks := func(name string) any { return []any{map[string]any{"name": name, "rules": rules[name]}} }
	const group = "admissionregistration.k8s.io/v1"
	return []*unstructured.Unstructured{
		object(v1alpha1.GroupVersion.String(), "AdmissionParameters", "spec", setting),
		object(group, "MutatingWebhookConfiguration", "webhooks", webhooks(workloadkind.AddedWorkloadsWebhook)),
		object(group, "ValidatingWebhookConfiguration", "webhooks", webhooks(workloadkind.AddedTemplatesWebhook)),
	}
}

func printWorkloadKinds(output io.Writer, objects []*unstructured.Unstructured) error {
	text := "# kubectl apply --server-side --force-conflicts --field-manager=" + v1alpha1.FieldManagerWorkloadKinds + " -f FILE\n"
	var documents []string
	for _, object := range objects {
		raw, err := yaml.Marshal(object.Object)
		if err != nil {
			return err
		}
		documents = append(documents, string(raw))
	}
	_, err := io.WriteString(output, text+strings.Join(documents, "---\n"))
	return err
}

// applyWorkloadKinds applies the objects. It returns an error if another program keeps a kind that was removed.
func applyWorkloadKinds(ctx context.Context, c client.Client, output io.Writer, objects []*unstructured.Unstructured, kinds int) error {
	for _, object := range objects {
		err := c.Apply(ctx, client.ApplyConfigurationFromUnstructured(object),
			client.FieldOwner(v1alpha1.FieldManagerWorkloadKinds), client.ForceOwnership)
		if err != nil {
			return fmt.Errorf("apply %s %s: %w", object.GetKind(), object.GetName(), explainForbidden(err,
				"this needs the rights to patch the AdmissionParameters and both webhook configurations named sluice, as cluster-admin has them"))
		}
		fmt.Fprintf(output, "%s/%s applied\n", strings.ToLower(object.GetKind()), object.GetName())
	}
	var parameters v1alpha1.AdmissionParameters
	if err := c.Get(ctx, client.ObjectKey{Name: v1alpha1.AdmissionParametersName}, &parameters); err != nil {
		return fmt.Errorf("read the AdmissionParameters: %w", err)
	}
	if left := len(parameters.Spec.PodTemplates); left != kinds {
		return fmt.Errorf("podTemplates of the AdmissionParameters has %d kinds, not %d: another field manager keeps them "+
			"(kubectl get admissionparameters sluice --show-managed-fields -o yaml); remove the kind there, too", left, kinds)
	}
	return nil
}
