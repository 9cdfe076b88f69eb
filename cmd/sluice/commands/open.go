// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os/exec"
	"runtime"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"sluice.dev/cmd/sluice/printer"
	"sluice.dev/cmd/sluice/workloads"
)

// notebookPort is the port of Jupyter.
const notebookPort = "8888"

func newOpenCommand() *cobra.Command {
	var port string
	var showToken, noBrowser, forward bool
	cmd := &cobra.Command{
		Use:   "open NAME",
		Short: "Open a notebook in your browser",
		Long: `Open the web page of a workload, such as a notebook, in your browser. If it has an Ingress
or another address that is reached from outside, that is opened. Otherwise a local port is
forwarded to it until Ctrl-C.

A notebook's token is read from its variables (JUPYTER_TOKEN) or from its log. It is not
printed: the browser gets it from a page on this machine that works once. --show-token
prints the whole address.`,
		Example: `  # Open a notebook
  sluice open notebook

  # Print the address with its token, for another machine's browser
  sluice open notebook --no-browser --show-token

  # Open TensorBoard
  sluice open training --port 6006 -p thesis-mueller`,
		Args: cobra.ExactArgs(1),
	}
	flags := addPodFlags(cmd)
	cmd.Flags().StringVar(&port, "port", "", "Port of the page (default: the declared port, or 8888)")
	cmd.Flags().BoolVar(&showToken, "show-token", false, "Print the address with the token")
	cmd.Flags().BoolVar(&noBrowser, "no-browser", false, "Print the address only")
	cmd.Flags().BoolVar(&forward, "forward", false, "Forward a local port, also if the workload has an address outside")
	cmd.ValidArgsFunction = flags.completeWorkload
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		target, err := flags.connectPod(cmd, args[0], true)
		if err != nil {
			return err
		}
		if port != "" {
			if err := validatePorts(port); err != nil || strings.Contains(port, ":") {
				return fmt.Errorf("--port %s: want a number up to 65535", port)
			}
		} else if port = notebookPort; len(declaredPorts(target.workload, target.pod)) > 0 {
			port = declaredPorts(target.workload, target.pod)[0]
		}
		token := target.notebookToken(cmd.Context(), target.pod, target.container)
		page := webPage{token: token, output: cmd.OutOrStdout(), showToken: showToken, noBrowser: noBrowser}
		if address := outsideAddress(target.workload); address != "" && !forward {
			return page.open(cmd.Context(), address)
		}
		return target.openForwarded(cmd, target.pod, port, &page)
	}
	return cmd
}

// openForwarded forwards a free local port to a pod and opens its page.
func (c *clusterClient) openForwarded(cmd *cobra.Command, pod *corev1.Pod, port string, page *webPage) error {
	ctx, end := context.WithCancel(cmd.Context())
	defer end()
	forwarder, err := c.newPortForwarder(ctx, pod, []string{"127.0.0.1"}, []string{":" + port}, io.Discard, cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- forwarder.ForwardPorts() }()
	select {
	case err := <-ended:
		return explainForwarding(cmd.Context(), pod, err)
	case <-forwarder.Ready:
	}
	ports, err := forwarder.GetPorts()
	if err != nil {
		return err
	}
	address := "http://127.0.0.1:" + strconv.Itoa(int(ports[0].Local)) + "/"
	fmt.Fprintf(page.output, "Forwarding %s to port %s of pod %s until Ctrl-C\n", address, port, printer.Sanitize(pod.Name))
	if err := page.open(ctx, address); err != nil {
		return err
	}
	return explainForwarding(cmd.Context(), pod, <-ended)
}

// webPage is how a page is opened.
type webPage struct {
	token                string
	output               io.Writer
	showToken, noBrowser bool
}

// open prints the address of a page, and opens it in a browser if the output is a terminal. A token is only in
// the printed address if the user requested it.
func (p *webPage) open(ctx context.Context, address string) error {
	secret := address
	if p.token != "" {
		parsed, err := url.Parse(address)
		if err != nil {
			return fmt.Errorf("the address %q: %w", address, err)
		}
		parsed.RawQuery = url.Values{"token": {p.token}}.Encode()
		secret = parsed.String()
	}
	if p.showToken || p.token == "" {
		fmt.Fprintln(p.output, printer.Sanitize(secret))
		if !p.noBrowser && terminalOf(p.output) != nil && p.token == "" {
			return startBrowser(ctx, secret)
		}
		return nil
	}
	fmt.Fprintln(p.output, printer.Sanitize(address))
	if p.noBrowser {
		fmt.Fprintln(p.output, "Its token is not printed; --show-token prints the address with it.")
		return nil
	}
	link, used, err := serveOnce(ctx, secret)
	if err != nil {
		return err
	}
	fmt.Fprintf(p.output, "Log in once with %s\n", link)
	if terminalOf(p.output) != nil {
		if err := startBrowser(ctx, link); err != nil {
			fmt.Fprintf(p.output, "Open it yourself: %v\n", err)
		}
	}
	select {
	case <-ctx.Done():
	case <-used:
	}
	return nil
}

// startBrowser opens an address in the user's browser.
func startBrowser(ctx context.Context, address string) error {
	program := "xdg-open"
	if runtime.GOOS == "darwin" {
		program = "open"
	}
	path, err := exec.LookPath(program)
	if err != nil {
		return errors.New("this machine has no browser")
	}
	return exec.CommandContext(context.WithoutCancel(ctx), path, address).Start()
}

// outsideAddress returns the address of a workload's Ingress; empty if it has none.
func outsideAddress(w *workloads.Workload) string {
	for _, address := range w.Addresses() {
		if strings.HasPrefix(address, "http://") || strings.HasPrefix(address, "https://") {
			return address
		}
	}
	return ""
}

// tokenVariables are the variables with the token of Jupyter, and of its former images.
var tokenVariables = []string{"JUPYTER_TOKEN", "NOTEBOOK_TOKEN"}

// logTail is the number of lines of a log in which the token is searched. Jupyter writes it when it starts.
const logTail = 2000

// notebookToken returns the token of a notebook, from its variables or its log; empty if neither has one. Users
// who may not read the log open the page without it.
func (c *clusterClient) notebookToken(ctx context.Context, pod *corev1.Pod, container string) string {
	if token := tokenOfVariables(pod, container); token != "" {
		return token
	}
	var log strings.Builder
	options := &corev1.PodLogOptions{Container: container, TailLines: ptr.To[int64](logTail), LimitBytes: ptr.To[int64](1 << 20)}
	if err := c.copyLog(ctx, pod, options, &log); err != nil {
		return ""
	}
	return tokenOfLog(log.String())
}

// tokenOfVariables returns the token in a container's variables; empty if it comes from a Secret.
func tokenOfVariables(pod *corev1.Pod, container string) string {
	for i := range pod.Spec.Containers {
		if pod.Spec.Containers[i].Name != container {
			continue
		}
		for _, name := range tokenVariables {
			for _, variable := range pod.Spec.Containers[i].Env {
				if variable.Name == name && variable.Value != "" {
					return variable.Value
				}
			}
		}
	}
	return ""
}

// tokenOfLog returns the last token in a log: in an address such as http://127.0.0.1:8888/lab?token=0123abcd.
func tokenOfLog(log string) string {
	const most = 200 // characters of a token
	token := ""
	for line := range strings.Lines(log) {
		before, after, found := strings.Cut(line, "?token=")
		if !found || !strings.Contains(before, "http://") && !strings.Contains(before, "https://") {
			continue
		}
		end := strings.IndexFunc(after, func(r rune) bool {
			return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '_' && r != '.'
		})
		if end < 0 {
			end = len(after)
		}
		if end > 0 && end <= most {
			token = after[:end]
		}
	}
	return token
}
