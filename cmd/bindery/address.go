package main

import (
	"net"
	"strconv"
)

// beyond reports whether an address is reached from other machines.
func beyond(host string) bool {
	ip := net.ParseIP(host)
	return (ip == nil || !ip.IsLoopback()) && host != "localhost"
}

// onThisMachine reads a flag's HOST:PORT, which must be a loopback address.
func onThisMachine(flag, text, why, example string) (host string, port int, err error) {
	if host, port, err = hostPort(flag, text, example); err != nil {
		return "", 0, err
	}
	if beyond(host) {
		return "", 0, usage("--"+flag+" is not on this machine", why,
			do("serve").With("--"+flag, "127.0.0.1:"+strconv.Itoa(port)))
	}
	return host, port, nil
}

// hostPort reads a flag's HOST:PORT.
func hostPort(flag, text, example string) (host string, port int, err error) {
	host, number, err := net.SplitHostPort(text)
	if err == nil {
		port, err = strconv.Atoi(number)
	}
	if err != nil || port < 0 || port > 65535 {
		return "", 0, usage("--"+flag+" is no HOST:PORT", "", do("serve").With("--"+flag, "127.0.0.1:"+example))
	}
	return host, port, nil
}
