// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package commands has the commands of the sluice command line. Each reads its
// flags, reads or writes objects of one cluster, and prints a table, text, JSON or
// YAML. The commands start no controller and make no decision of their own.
// The program sluice-lab runs the embedded cluster.
package commands

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	ctrl "sigs.k8s.io/controller-runtime"

	"sluice.dev/api/config"
	"sluice.dev/cmd/sluice/printer"
)

// NewRootCommand returns the command sluice with all its subcommands.
func NewRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "sluice",
		Short: "Manage a shared GPU cluster that Sluice governs",
		Long: `sluice shows and changes how Sluice governs a GPU cluster: time limits, extensions,
notices and the use of GPUs. With the program sluice-lab beside it, it runs a whole cluster on
this machine: a real Kubernetes with simulated DGX nodes.`,
		Version:       config.VersionText(),
		SilenceErrors: true, // main prints them once
		SilenceUsage:  true, // the usage would hide the error
	}
	noColor := root.PersistentFlags().Bool("no-color", false, "Print without colors")
	root.PersistentPreRun = func(*cobra.Command, []string) {
		ctrl.SetLogger(logr.Discard()) // the commands return their errors
		if *noColor {
			// Only a writer that is a terminal gets colors.
			root.SetOut(struct{ io.Writer }{root.OutOrStdout()})
		}
	}
	root.SetUsageTemplate(usageTemplate())
	root.AddCommand(
		newProjectsCommand(), newClocksCommand(),
		newExtendCommand(), newRenewCommand(), newExtensionsCommand(), newApproveCommand(), newDenyCommand(), newDismissCommand(),
		newGroup("notices", "Show notices, send them again, or pause mail", noticesHelp,
			newNoticesListCommand(), newNoticesShowCommand(), newNoticesResendCommand(), newNoticesTestCommand(),
			newNoticesPauseCommand(), newNoticesResumeCommand(), newNoticesPreviewCommand()),
		newGroup("brake", "Show or release the stop limiter", brakeHelp, newBrakeShowCommand(), newBrakeReleaseCommand()),
		newPauseCommand(), newResumeCommand(), newInstallCommand(), newUninstallCommand(),
		newGroup("policy", "Write, test, explain and roll out policies", policyHelp,
			newPolicyCheckCommand(), newPolicyTestCommand(), newPolicyEvalCommand(), newPolicyReplayCommand(),
			newPolicyImportCommand(), newPolicyAuditCommand(), newPolicyNewCommand(), newPolicyLintCommand(),
			newPolicyBenchCommand(), newPolicyDiffCommand(), newPolicyBuildCommand(), newPolicyExportCommand(), newPolicySchemaCommand()),
		newGroup("workload-kinds", "Add kinds that create pods, or remove them", workloadKindsHelp,
			newWorkloadKindsAddCommand(), newWorkloadKindsRemoveCommand()),
		newTopCommand(), newUsageCommand(),
		newWhyCommand(), newWhoamiCommand(),
		newReportCommand(),
		newDoctorCommand(), newAdoptCommand(),
		newSubmitCommand(), newSubmitDistributedCommand(),
		newGroup("preset", "List, show or create presets of submissions", presetHelp,
			newPresetListCommand(), newPresetShowCommand(), newPresetCreateCommand()),
		newListCommand(), newGetCommand(), newStopCommand(), newStartCommand(), newDeleteCommand(), newCloneCommand(),
		newLogsCommand(), newExecCommand(), newBashCommand(), newAttachCommand(), newPortForwardCommand(), newOpenCommand(),
		newGroup("project", "Choose or list projects", projectHelp, newProjectListCommand(), newProjectSetCommand("set", "project set")),
		newGroup("config", "Change the kubeconfig", configHelp, newProjectSetCommand("project", "config project")),
		newOptionsCommand(),
	)
	root.AddCommand(newLabCommands()...)
	explainMisuse(root)
	return root
}

// usageTemplate returns cobra's template without the flags that `sluice options` lists.
func usageTemplate() string {
	cobra.AddTemplateFunc("ownFlags", ownFlags)
	cobra.AddTemplateFunc("hasConnectionFlags", hasConnectionFlags)
	text := strings.Replace((&cobra.Command{}).UsageTemplate(), "{{.LocalFlags.FlagUsages | trimTrailingWhitespaces}}{{end}}",
		"{{(ownFlags .).FlagUsages | trimTrailingWhitespaces}}{{end}}", 1)
	return text + `{{if hasConnectionFlags .}}
Use "{{.Root.DisplayName}} options" for kubectl's flags, which this command accepts too.
{{end}}`
}

// newGroup returns a command that only has subcommands.
func newGroup(name, short, long string, commands ...*cobra.Command) *cobra.Command {
	group := &cobra.Command{
		Use: name, Short: short, Long: long, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	group.AddCommand(commands...)
	return group
}

// The output formats.
const (
	tableFormat = "table"
	wideFormat  = "wide"
	textFormat  = "text"
	jsonFormat  = "json"
	yamlFormat  = "yaml"
	csvFormat   = "csv"
)

// outputFlag is the flag -o.
type outputFlag struct{ format string }

// addListOutputFlag adds -o to a command that prints a table.
func addListOutputFlag(cmd *cobra.Command, more ...string) *outputFlag {
	return addOutputFlag(cmd, append([]string{tableFormat, wideFormat, jsonFormat, yamlFormat}, more...))
}

// addTextOutputFlag adds -o to a command that prints one result.
func addTextOutputFlag(cmd *cobra.Command) *outputFlag {
	return addOutputFlag(cmd, []string{textFormat, jsonFormat, yamlFormat})
}

func addOutputFlag(cmd *cobra.Command, formats []string) *outputFlag {
	output := &outputFlag{format: formats[0]}
	addChoiceFlag(cmd, &output.format, "output", "o", "Output format", formats)
	return output
}

// isObject reports whether the output is an object for programs.
func (o *outputFlag) isObject() bool { return o.format == jsonFormat || o.format == yamlFormat }

// print prints value as JSON or YAML, or calls text for the other formats.
func (o *outputFlag) print(output io.Writer, value any, text func(io.Writer) error) error {
	switch o.format {
	case jsonFormat:
		return printer.WriteJSON(output, value)
	case yamlFormat:
		return printer.WriteYAML(output, value)
	default:
		return text(output)
	}
}

// printText prints value as JSON, YAML or text.
func (o *outputFlag) printText(output io.Writer, value any, text string) error {
	return o.print(output, value, func(output io.Writer) error {
		_, err := io.WriteString(output, text)
		return err
	})
}

// printList prints value as JSON or YAML, or the table. An empty table becomes a
// message on standard error that names the resources.
func (o *outputFlag) printList(cmd *cobra.Command, value any, table printer.Table, resources string) error {
	return o.print(cmd.OutOrStdout(), value, func(output io.Writer) error {
		if len(table.Rows) == 0 {
			fmt.Fprintf(cmd.ErrOrStderr(), "No %s found.\n", resources)
			return nil
		}
		return table.Write(output, o.format == wideFormat)
	})
}

// choiceFlag is the value of a flag that accepts a few values, in any case.
type choiceFlag struct {
	value   *string
	choices []string
}

func addChoiceFlag(cmd *cobra.Command, value *string, name, shorthand, usage string, choices []string) {
	flag := choiceFlag{value, choices}
	cmd.Flags().VarP(flag, name, shorthand, usage+": "+flag.list())
	completeFlag(cmd, name, cobra.FixedCompletions(choices, cobra.ShellCompDirectiveNoFileComp))
}

func (f choiceFlag) list() string {
	last := len(f.choices) - 1
	return strings.Join(f.choices[:last], ", ") + " or " + f.choices[last]
}

// Set implements pflag.Value.
func (f choiceFlag) Set(text string) error {
	i := slices.IndexFunc(f.choices, func(choice string) bool { return strings.EqualFold(choice, text) })
	if i < 0 {
		return fmt.Errorf("want %s", f.list())
	}
	*f.value = f.choices[i]
	return nil
}

// String implements pflag.Value.
func (f choiceFlag) String() string {
	if f.value == nil {
		return ""
	}
	return *f.value
}

// Type implements pflag.Value.
func (f choiceFlag) Type() string { return "string" }
