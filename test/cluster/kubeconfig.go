// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// contextName is the name of cluster and context in all kubeconfigs.
const contextName = "sluice"

// writeKubeconfig writes a kubeconfig for one user of one cluster. An empty namespace means
// default.
func writeKubeconfig(path string, cluster *clientcmdapi.Cluster, name string, user *clientcmdapi.AuthInfo, namespace string) error {
	config := clientcmdapi.NewConfig()
	config.Clusters[contextName] = cluster
	config.AuthInfos[name] = user
	config.Contexts[contextName] = &clientcmdapi.Context{Cluster: contextName, AuthInfo: name, Namespace: namespace}
	config.CurrentContext = contextName
	content, err := clientcmd.Write(*config)
	if err == nil {
		err = writeFile(path, content)
	}
	if err != nil {
		return fmt.Errorf("write kubeconfig of %s: %w", name, err)
	}
	return nil
}

func certificateAuthInfo(pair KeyPair) *clientcmdapi.AuthInfo {
	user := clientcmdapi.NewAuthInfo()
	user.ClientCertificateData, user.ClientKeyData = pair.Cert, pair.Key
	return user
}

func tokenFileAuthInfo(path string) *clientcmdapi.AuthInfo {
	user := clientcmdapi.NewAuthInfo()
	user.TokenFile = path
	return user
}

// adminKubeconfig returns the cluster and the user of the current context of the
// administrator's kubeconfig, which may be the user's own file.
func (c *Cluster) adminKubeconfig() (*clientcmdapi.Cluster, *clientcmdapi.AuthInfo, error) {
	config, err := clientcmd.LoadFromFile(c.kubeconfig)
	if err != nil {
		return nil, nil, fmt.Errorf("read kubeconfig: %w", err)
	}
	// Its relative paths refer to the folder of the kubeconfig.
	if err := clientcmd.ResolveLocalPaths(config); err != nil {
		return nil, nil, fmt.Errorf("read kubeconfig %s: %w", c.kubeconfig, err)
	}
	current := config.Contexts[config.CurrentContext]
	if current == nil {
		return nil, nil, fmt.Errorf("kubeconfig %s has no current context; choose one with `kubectl config use-context`", c.kubeconfig)
	}
	cluster, user := config.Clusters[current.Cluster], config.AuthInfos[current.AuthInfo]
	if cluster == nil || user == nil {
		return nil, nil, fmt.Errorf("kubeconfig %s: its context %s names a cluster or a user that it does not define",
			c.kubeconfig, config.CurrentContext)
	}
	return cluster, user, nil
}

// loadConfig reads a kubeconfig and turns off client-side throttling: tests measure the
// server.
func loadConfig(path string) (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig: %w", err)
	}
	config.QPS = -1
	return config, nil
}

// UserKubeconfig writes a kubeconfig for a user in groups and returns its path. The path is
// the same for the same user and groups. For a started cluster the kubeconfig holds a
// client certificate that is valid for a year. For an attached cluster it impersonates the
// user with the administrator's rights.
func (c *Cluster) UserKubeconfig(user string, groups ...string) (string, error) {
	path, err := c.writeUserKubeconfig(user, groups)
	if err != nil {
		return "", fmt.Errorf("kubeconfig of user %q: %w", user, err)
	}
	return path, nil
}

func (c *Cluster) writeUserKubeconfig(user string, groups []string) (string, error) {
	if user == "" {
		return "", errors.New("the user name is empty")
	}
	dir, err := c.folder.makeDir("kubeconfigs")
	if err != nil {
		return "", err
	}
	cluster, identity, err := c.adminKubeconfig()
	if err != nil {
		return "", err
	}
	if c.attached {
		identity = identity.DeepCopy()
		identity.Impersonate, identity.ImpersonateGroups = user, groups
	} else {
		pair, err := c.ca.Client(user, groups...)
		if err != nil {
			return "", err
		}
		identity = certificateAuthInfo(pair)
	}
	path := filepath.Join(dir, fileName(user, groups)+".kubeconfig")
	return path, writeKubeconfig(path, cluster, user, identity, "")
}

var invalidFileChars = regexp.MustCompile(`[^a-zA-Z0-9._-]+`)

// fileName returns a readable file name that is unique for the user and groups, for any
// characters in them.
func fileName(user string, groups []string) string {
	sum := sha256.Sum256([]byte(strings.Join(append([]string{user}, groups...), "\x00")))
	name := strings.TrimLeft(invalidFileChars.ReplaceAllString(user, "-"), ".-")
	return name[:min(len(name), 60)] + "-" + hex.EncodeToString(sum[:4])
}
