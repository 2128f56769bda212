// A page around Shlink's web component, with what Shlink's web client adds to it: a form for the server, of which the
// browser keeps the base URL and the API key. It runs on an origin of its own, as that client does.

import { useMemo, useState } from 'react';
import { createRoot } from 'react-dom/client';
import { BrowserRouter } from 'react-router';
import { ShlinkApiClient } from '@shlinkio/shlink-js-sdk';
import { FetchHttpClient } from '@shlinkio/shlink-js-sdk/fetch';
import { ShlinkSidebarVisibilityProvider, ShlinkWebComponent } from '@shlinkio/shlink-web-component';

const clientOf = (server) => new ShlinkApiClient(new FetchHttpClient(), server);

function Connect({ onConnected }) {
  const [error, setError] = useState('');
  const connect = async (event) => {
    event.preventDefault();
    const server = Object.fromEntries(new FormData(event.target));
    try {
      const { version } = await clientOf(server).health();
      localStorage.setItem('server', JSON.stringify({ ...server, version }));
      onConnected({ ...server, version });
    } catch (failure) {
      setError(`Could not connect to this server. ${failure}`);
    }
  };
  return (
    <form onSubmit={connect}>
      <input name="baseUrl" />
      <input name="apiKey" />
      <button type="submit">Connect</button>
      <p>{error}</p>
    </form>
  );
}

function App() {
  const [server, setServer] = useState(JSON.parse(localStorage.getItem('server') ?? 'null'));
  const client = useMemo(() => server && clientOf(server), [server]);
  if (!server) {
    return <Connect onConnected={setServer} />;
  }
  return (
    <ShlinkSidebarVisibilityProvider>
      <ShlinkWebComponent
        serverVersion={server.version}
        apiClient={client}
        autoSidebarToggle={false}
        settings={{ realTimeUpdates: { enabled: false } }}
      />
    </ShlinkSidebarVisibilityProvider>
  );
}

createRoot(document.getElementById('root')).render(
  <BrowserRouter>
    <App />
  </BrowserRouter>,
);
