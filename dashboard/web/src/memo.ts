import { Component, createElement, type ComponentType, type FunctionComponent } from 'preact';

/** A component that is rendered again only when one of its properties is another. */
export function memo<P extends object>(of: FunctionComponent<P>): ComponentType<P> {
  return class Memo extends Component<P> {
    override shouldComponentUpdate(next: P): boolean {
      const keys = Object.keys(next) as (keyof P)[];
      return keys.some((key) => next[key] !== this.props[key]);
    }
    override render() {
      return createElement(of, this.props);
    }
  };
}
