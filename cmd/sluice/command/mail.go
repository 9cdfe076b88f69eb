// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"sluice.dev/cmd/sluice/mail"
	"sluice.dev/cmd/sluice/show"
	"sluice.dev/cmd/sluice/up"
	"sluice.dev/test/cluster"
)

func mailCommand() *cobra.Command {
	cmd := mailListCommand("mail")
	cmd.Short = "Show the mail that the embedded Kubernetes sent"
	cmd.Long = `mail lists the mails that an embedded Kubernetes sent. They go nowhere: a mail server
on this machine keeps each as a file.`
	cmd.Example = `  sluice mail
  sluice mail --to anna.mueller@example.org
  sluice mail show 1
  sluice mail show 1 --raw`
	cmd.AddCommand(mailListCommand("list"), mailShowCommand())
	return cmd
}

func mailListCommand(name string) *cobra.Command {
	var dir, to, output string
	cmd := &cobra.Command{
		Use:   name,
		Short: "List the mails that were sent, the latest last",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			mails, err := mailFolder(dir)
			if err != nil {
				return err
			}
			list, err := mail.List(mails, to)
			if err != nil {
				return err
			}
			if output == "json" {
				return show.JSON(cmd.OutOrStdout(), list)
			}
			if len(list.Mails) == 0 {
				fmt.Fprintln(cmd.ErrOrStderr(), "no mail was sent")
				return nil
			}
			return list.Table(cmd.OutOrStdout(), time.Local)
		},
	}
	dirFlag(cmd, &dir)
	cmd.Flags().StringVar(&to, "to", "", "those to this `address` alone")
	outputFlag(cmd, &output, "table", "json")
	return cmd
}

func mailShowCommand() *cobra.Command {
	var dir, output string
	var html, raw bool
	cmd := &cobra.Command{
		Use:   "show N|FILE",
		Short: "Show one mail",
		Long: `show prints a mail's header and text. It is named by its number or by its file; the
number stays the same.`,
		Example: `  sluice mail show 1
  sluice mail show 1 --html > mail.html`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if html && raw {
				return errors.New("want one of --html and --raw")
			}
			mails, err := mailFolder(dir)
			if err != nil {
				return err
			}
			found, err := mail.Find(mails, args[0])
			if err != nil {
				return err
			}
			switch {
			case html:
				return mail.HTML(cmd.OutOrStdout(), found)
			case raw:
				return mail.Raw(cmd.OutOrStdout(), found)
			case output == "json":
				return show.JSON(cmd.OutOrStdout(), found)
			}
			return mail.Text(cmd.OutOrStdout(), found, time.Local)
		},
	}
	dirFlag(cmd, &dir)
	cmd.Flags().BoolVar(&html, "html", false, "its HTML as it came, for a browser")
	cmd.Flags().BoolVar(&raw, "raw", false, "its bytes as they came")
	outputFlag(cmd, &output, "text", "json")
	return cmd
}

// mailFolder is where the mails of the embedded cluster in dir are.
func mailFolder(dir string) (string, error) {
	absolute, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	if !cluster.Exists(absolute) {
		return "", fmt.Errorf("%s is no embedded cluster's folder: name it with --dir, or start one with `sluice up`; a real cluster's mails are in its people's mailboxes", dir)
	}
	return up.MailDir(absolute), nil
}
