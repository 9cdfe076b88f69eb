// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package clustertest

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"
)

// Cluster is a control plane that sluice-lab runs for the tests, or the user's own cluster.
type Cluster struct {
	dir, kubeconfig string
	config          *rest.Config
	// lab is the running sluice-lab, which stops when its input closes; nil for the user's own cluster.
	lab   *exec.Cmd
	input io.Closer
	// beforeStop are the functions to call at Stop, the last one first.
	beforeStop []func() error
}

// StartCluster starts a control plane with further arguments of its components, such as "kube-apiserver=--v=2". It stops when the
// test binary ends, however that ends.
func StartCluster(ctx context.Context, arguments ...string) (*Cluster, error) {
	program, err := labProgram()
	if err != nil {
		return nil, err
	}
	lab := exec.Command(program, "control-plane") //nolint:noctx // Stop ends it, or the end of this process
	for _, argument := range arguments {
		lab.Args = append(lab.Args, "--argument", argument)
	}
	lab.Stderr = os.Stderr
	lab.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Stop ends it in its order, not an interrupt of the terminal
	input, err := lab.StdinPipe()
	if err != nil {
		return nil, err
	}
	output, err := lab.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := lab.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", program, err)
	}
	c := &Cluster{lab: lab, input: input}
	defer context.AfterFunc(ctx, func() { input.Close() })()
	var ready struct{ Dir, Kubeconfig string }
	line, err := bufio.NewReader(output).ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &ready)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start a control plane: sluice-lab did not report it: %w", err), c.Stop())
	}
	c.dir, c.kubeconfig = ready.Dir, ready.Kubeconfig
	if c.config, err = loadConfig(c.kubeconfig); err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	return c, nil
}

// attachCluster returns the cluster of a kubeconfig, with a folder for the tests' files.
func attachCluster(kubeconfig string) (*Cluster, error) {
	config, err := loadConfig(kubeconfig)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "sluice-test-")
	return &Cluster{dir: dir, kubeconfig: kubeconfig, config: config}, err
}

func loadConfig(kubeconfig string) (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig: %w", err)
	}
	config.QPS = -1
	return config, nil
}

// Config returns a copy of the administrator's client configuration, without client-side throttling.
func (c *Cluster) Config() *rest.Config { return rest.CopyConfig(c.config) }

// Kubeconfig returns the path of the administrator's kubeconfig.
func (c *Cluster) Kubeconfig() string { return c.kubeconfig }

// Dir returns the folder of the cluster's files.
func (c *Cluster) Dir() string { return c.dir }

// CAFile returns the path of the certificate of the cluster's authority.
func (c *Cluster) CAFile() string { return filepath.Join(c.dir, "pki", "ca.crt") }

// Attached reports whether the cluster is the user's own.
func (c *Cluster) Attached() bool { return c.lab == nil }

// BeforeStop makes Stop call a function while the cluster runs, such as one that stops a component.
func (c *Cluster) BeforeStop(stop func() error) { c.beforeStop = append(c.beforeStop, stop) }

// Stop stops the control plane, and returns when its files are removed. The user's own cluster continues to run.
func (c *Cluster) Stop() error {
	var errs []error
	for _, stop := range slices.Backward(c.beforeStop) {
		errs = append(errs, stop())
	}
	if c.lab == nil {
		return errors.Join(append(errs, os.RemoveAll(c.dir))...)
	}
	c.input.Close()
	kill := time.AfterFunc(stopTimeout, func() { _ = c.lab.Process.Kill() })
	defer kill.Stop()
	if err := c.lab.Wait(); err != nil {
		errs = append(errs, fmt.Errorf("stop the control plane: %w", err))
	}
	return errors.Join(errs...)
}

// tokenLifetime is longer than a test.
const tokenLifetime = 24 * time.Hour

// ServiceAccountKubeconfig writes a kubeconfig for an existing ServiceAccount and returns its path.
func (c *Cluster) ServiceAccountKubeconfig(ctx context.Context, namespace, name string) (string, error) {
	return c.NodeBoundKubeconfig(ctx, namespace, name, "")
}

// NodeBoundKubeconfig is ServiceAccountKubeconfig for a pod on an existing node, which the token names unless it is "".
func (c *Cluster) NodeBoundKubeconfig(ctx context.Context, namespace, name, node string) (string, error) {
	client, err := kubernetes.NewForConfig(c.config)
	if err != nil {
		return "", err
	}
	request := &authenticationv1.TokenRequest{}
	request.Spec.ExpirationSeconds = ptr.To(int64(tokenLifetime / time.Second))
	if node != "" {
		request.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Node", Name: node}
	}
	response, err := client.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, name, request, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("request a token of ServiceAccount %s/%s: %w", namespace, name, err)
	}
	raw, err := clientcmd.LoadFromFile(c.kubeconfig)
	if err != nil {
		return "", err
	}
	current := raw.Contexts[raw.CurrentContext]
	if current == nil {
		return "", fmt.Errorf("kubeconfig %s has no current context", c.kubeconfig)
	}
	raw.AuthInfos[current.AuthInfo] = &clientcmdapi.AuthInfo{Token: response.Status.Token}
	current.Namespace = namespace
	path := filepath.Join(c.dir, strings.Join([]string{"account", namespace, name, node}, "-")+".kubeconfig")
	return path, errors.Join(clientcmd.ResolveLocalPaths(raw), clientcmd.WriteToFile(*raw, path))
}
