// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"sluice.dev/cmd/sluice/printer"
	"sluice.dev/cmd/sluice/submission"
)

// PrepareArguments rewrites the arguments of a command line of sluice: only submit and preset create have a flag
// --command that can stand before the two dashes.
func PrepareArguments(arguments []string) []string {
	isSubmit := func(argument string) bool {
		return slices.Contains([]string{"submit", "submit-dist", "preset"}, argument)
	}
	if at := slices.IndexFunc(arguments, isSubmit); at < 0 {
		return arguments
	}
	return submission.Prepare(arguments)
}

func newSubmitCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "submit [NAME] {--image IMAGE | --preset PRESET}",
		Short: "Start training, a notebook or inference",
		Long: `Start a workload of plain Kubernetes objects: a Job for training, a Deployment for interactive
work and inference, with a Service, an Ingress and volume claims where the flags ask for them. The
cluster checks all objects before the first is created. Without a name, the workload gets that of its
image with five random characters.`,
		Example: `  # Train on half a GPU
  sluice submit training -i registry.example.org/train:1 -g 0.5 -p thesis-mueller

  # Start a notebook, which sluice open opens
  sluice submit notebook -i quay.io/jupyter/base-notebook -g 0.5 --interactive --port 8888

  # Start a shell and use it; leaving it ends the program
  sluice submit shell -i ubuntu --interactive -it --attach

  # Run a command
  sluice submit build -i python:3.12 --interactive --command sleep --args infinity
  sluice submit train -i python:3.12 -g 1 --command -- python train.py --epochs 3

  # Use presets: an environment and a compute resource; other flags win over them
  sluice submit notebook --preset jupyter --preset small --cpu 4

  # Print the objects for kubectl
  sluice submit training -i registry.example.org/train:1 -g 1 --dry-run=client -o yaml`,
		Args: cobra.ArbitraryArgs,
	}
	addSubmission(cmd, submission.AddFlags(cmd.Flags()))
	return cmd
}

func newSubmitDistributedCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "submit-dist {mpi|pytorch} [NAME] --image IMAGE --workers N",
		Short: "Start distributed training with MPI or PyTorch",
		Long: `Start distributed training as an MPIJob or a PyTorchJob of Kubeflow, whose operator the cluster must
have. --gpu is the number of each worker. All other flags are those of sluice submit.`,
		Example: `  # Four workers with two GPUs each
  sluice submit-dist mpi train --workers 4 -g 2 -i registry.example.org/train:1 --command -- mpirun python train.py`,
		Args:      cobra.MinimumNArgs(1),
		ValidArgs: []cobra.Completion{string(submission.MPI), string(submission.PyTorch)},
	}
	flags := submission.AddFlags(cmd.Flags())
	flags.AddWorkersFlag()
	addSubmission(cmd, flags)
	return cmd
}

// addSubmission adds the flags that select a cluster and the output, and what the command does.
func addSubmission(cmd *cobra.Command, flags *submission.Flags) {
	cluster := addWorkloadFlags(cmd, namespaceScope)
	creation := addCreationFlags(cmd)
	attach := cmd.Flags().Bool("attach", false, "Wait until the workload runs, and attach to its program; Ctrl-C leaves it running")
	cluster.completeSubmissionFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		framework, args, dash, err := splitFramework(cmd, args)
		if err != nil {
			return err
		}
		var c *clusterClient
		var presets *submission.Presets
		if len(flags.Presets()) > 0 { // a dry run of the client, too, reads them
			if c, err = cluster.connectForSubmission(cmd, creation.dryRun, true); err != nil {
				return err
			}
			if presets, err = listPresets(cmd.Context(), c, c.namespace); err != nil {
				return err
			}
		}
		request, err := flags.Request(args, dash, presets)
		if err != nil {
			return err
		}
		if framework != "" {
			request.Framework = framework
		}
		if *attach && (creation.dryRun != dryRunNone || creation.output.isObject()) {
			return errors.New("--attach: not with --dry-run or --output, which print objects")
		}
		if c == nil {
			if c, err = cluster.connectForSubmission(cmd, creation.dryRun, len(request.MissingImages()) > 0); err != nil {
				return err
			}
		}
		if err := submit(cmd, c, request, creation); err != nil || !*attach {
			return err
		}
		return c.attachSubmission(cmd, request)
	}
}

// splitFramework returns the framework that submit-dist names first.
func splitFramework(cmd *cobra.Command, args []string) (framework submission.Framework, rest []string, dash int, err error) {
	dash = cmd.ArgsLenAtDash()
	if cmd.Name() != "submit-dist" {
		return "", args, dash, nil
	}
	framework = submission.Framework(args[0])
	if framework != submission.MPI && framework != submission.PyTorch {
		return "", nil, 0, fmt.Errorf("framework %q: want mpi or pytorch", args[0])
	}
	return framework, args[1:], max(dash-1, -1), nil
}

// writeObjects writes the objects as YAML documents, or as a list in JSON.
func writeObjects(output io.Writer, format string, objects []*unstructured.Unstructured) error {
	if format == jsonFormat {
		items := make([]any, len(objects))
		for i, object := range objects {
			items[i] = object.Object
		}
		return printer.WriteJSON(output, map[string]any{"apiVersion": "v1", "kind": "List", "items": items})
	}
	documents := make([]string, len(objects))
	for i, object := range objects {
		document, err := yaml.Marshal(object.Object)
		if err != nil {
			return err
		}
		documents[i] = string(document)
	}
	_, err := io.WriteString(output, strings.Join(documents, "---\n"))
	return err
}
