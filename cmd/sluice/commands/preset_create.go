// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/cmd/sluice/printer"
	"sluice.dev/cmd/sluice/submission"
)

// presetSource is where the presets of preset create come from.
type presetSource struct {
	flags                             *submission.Flags
	presetType, description, filename string
}

func newPresetCreateCommand() *cobra.Command {
	var source presetSource
	cmd := &cobra.Command{
		Use:   "create {NAME --type TYPE | -f FILE}",
		Short: "Create a preset from the flags of sluice submit, or from a file",
		Long: `Create a preset: an environment, a data source, a compute resource, or a template. The flags are
those of sluice submit; each type has its own, and a template has all. A template names other
presets with --preset. With -n sluice-system, the preset is for all projects.`,
		Example: `  # Create an environment
  sluice preset create jupyter --type environment -i quay.io/jupyter/base-notebook --interactive --port 8888

  # Create a compute resource, a data source, and a template of the three
  sluice preset create small --type compute -g 0.1 --cpu 2 --memory 8Gi
  sluice preset create course-data --type datasource --pvc course-data:/data:ro
  sluice preset create notebook --type template --preset jupyter,small,course-data --max-runtime 8h

  # Create presets for all projects from a file
  sluice preset create -f presets.yaml -n sluice-system`,
		Args: cobra.ArbitraryArgs,
	}
	source.flags = submission.AddFlags(cmd.Flags())
	cluster := addWorkloadFlags(cmd, namespaceScope)
	addChoiceFlag(cmd, &source.presetType, "type", "", "Type of the preset", presetTypes)
	cmd.Flags().StringVar(&source.description, "description", "", "What the preset is for, in one line")
	cmd.Flags().StringVarP(&source.filename, "filename", "f", "", "File with presets, or - for standard input")
	creation := addCreationFlags(cmd)
	cluster.completeSubmissionFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		presets, err := source.read(cmd, args)
		if err != nil {
			return err
		}
		c, err := cluster.connectForSubmission(cmd, creation.dryRun, false)
		if err != nil {
			return err
		}
		objects, err := presetObjects(presets, c.namespace, cmd.Flags().Changed("namespace") || cluster.project != "")
		if err != nil {
			return err
		}
		return creation.run(cmd, c, objects, presetUse(objects[0]))
	}
	return cmd
}

// read returns the presets that the command line describes.
func (s *presetSource) read(cmd *cobra.Command, args []string) ([]v1alpha1.Preset, error) {
	flags := cmd.Flags()
	if s.filename == "" {
		if s.presetType == "" {
			return nil, fmt.Errorf("--type: give the type of the preset, %s, or a file with -f", choiceFlag{choices: presetTypes}.list())
		}
		preset, err := s.flags.Preset(args, cmd.ArgsLenAtDash(), v1alpha1.PresetType(s.presetType))
		if err != nil {
			return nil, err
		}
		preset.Spec.Description = s.description
		return []v1alpha1.Preset{*preset}, nil
	}
	others := append(submission.PresetFlags(), "type", "description")
	if at := slices.IndexFunc(others, flags.Changed); at >= 0 {
		return nil, fmt.Errorf("--%s: the file of -f has the fields of the presets; give one of the two", others[at])
	}
	if len(args) > 0 {
		return nil, fmt.Errorf("arguments %q: the file of -f has the names of the presets", args)
	}
	file, err := readFileOrInput(cmd.InOrStdin(), s.filename)
	if err != nil {
		return nil, fmt.Errorf("-f %s: %w", s.filename, err)
	}
	presets, err := submission.ParsePresets(file)
	if err != nil {
		return nil, fmt.Errorf("-f %s: %w", s.filename, err)
	}
	return presets, nil
}

// presetObjects returns the presets as objects of a namespace, which the user may have named.
func presetObjects(presets []v1alpha1.Preset, namespace string, named bool) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	for i := range presets {
		p := &presets[i]
		switch {
		case p.Namespace == "":
			p.Namespace = namespace
		case named && p.Namespace != namespace:
			return nil, fmt.Errorf("preset %s: metadata.namespace %s: the flags name namespace %s", p.Name, p.Namespace, namespace)
		}
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(p)
		if err != nil {
			return nil, err
		}
		objects = append(objects, &unstructured.Unstructured{Object: content})
	}
	return objects, nil
}

// presetUse returns the command that uses a new preset.
func presetUse(preset *unstructured.Unstructured) string {
	where := ""
	if namespace := preset.GetNamespace(); namespace != v1alpha1.SystemNamespace {
		where = " -n " + namespace
	}
	return "\nTo use it: sluice submit --preset " + printer.Sanitize(preset.GetName()) + printer.Sanitize(where) + "\n"
}
