// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"

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

// clusterEntry returns the cluster of the administrator's kubeconfig.
func (c *Cluster) clusterEntry() (*clientcmdapi.Cluster, error) {
	config, err := clientcmd.LoadFromFile(c.kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig: %w", err)
	}
	return config.Clusters[config.Contexts[config.CurrentContext].Cluster], nil
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
